/** Reasons about exported and imported services. */
import type { ReasonTable } from './reason-row.ts'

const NOT_IMPORTED = ['condition sealane.io/Imported of ServiceExport', 'metric sealane_agent_not_imported'] as const
const CONFLICT = ['condition Conflict of ServiceExport', 'event on ServiceExport'] as const
const AGREE = 'Give all exports the same value. Until then a rule decides, which the message names.'
const OF_NAMESPACE = ['condition Valid of AccessPolicy'] as const
const DERIVED = ['condition sealane.io/DerivedService of ServiceImport'] as const
const POLICY = [...OF_NAMESPACE, 'condition Valid of ClusterAccessPolicy'] as const

export const SERVICE_REASONS = {
  Valid: {
    standard: 'KEP-1645',
    means: 'The Service exists and can be exported.',
    todo: 'Nothing.',
    shows: ['condition Valid of ServiceExport'],
  },
  NamespaceAllowed: {
    means: 'The namespace is guarded, and the `allowedNamespaces` of this cluster name it.',
    todo: 'Nothing.',
    shows: ['condition Valid of ServiceExport'],
  },
  ExportedBefore: {
    means: 'The namespace is guarded and not allowed here. The export stays, because an earlier release exported it.',
    todo: 'Name the namespace in `allowedNamespaces` of the site file, or remove the ServiceExport.',
    shows: ['condition Valid of ServiceExport'],
  },
  NoService: {
    standard: 'KEP-1645',
    means: "No Service has the ServiceExport's namespace and name, or the name is no DNS name.",
    todo: 'Create the Service, or remove the ServiceExport.',
    shows: ['condition Valid of ServiceExport', 'event on ServiceExport'],
  },
  InvalidServiceType: {
    standard: 'KEP-1645',
    means: 'The Service is of type ExternalName, which has no endpoints, or is headless and has cluster selectors.',
    todo: 'Export a Service of another type, or remove the cluster selectors.',
    shows: ['condition Valid of ServiceExport', 'event on ServiceExport'],
  },
  ServiceTooLarge: {
    means: 'The Service has more ports, labels, annotations, callers or endpoints in one slice than an export carries.',
    todo: 'Divide the Service, or export fewer labels and annotations.',
    shows: ['condition Valid of ServiceExport', 'event on ServiceExport'],
  },
  DerivedServiceNotExported: {
    means: 'The Service is derived from an import, so the clusters of the import export it themselves.',
    todo: 'Remove the ServiceExport.',
    shows: ['condition Valid of ServiceExport', 'event on ServiceExport'],
  },
  DerivedServiceReady: {
    means: 'The derived Service of the import and its EndpointSlices are there.',
    todo: 'Nothing.',
    shows: DERIVED,
  },
  DerivedServiceWithoutWeights: {
    means: 'A derived Service cannot have the shares of a traffic policy: each ready endpoint gets the same.',
    todo: 'Call the name in clusterset.local where the shares matter.',
    shows: DERIVED,
  },
  DerivedServiceNameTaken: {
    means: 'The name belongs to a Service of the user, or of an older import.',
    todo: 'Ask for another name, or remove that Service.',
    shows: DERIVED,
  },
  DerivedServiceNameInvalid: {
    means: 'The annotation `sealane.io/derived-service` is no usable name, or the import has no port.',
    todo: 'Correct what the message names.',
    shows: DERIVED,
  },
  DerivedServiceNotAsked: {
    means: 'No annotation asks for a derived Service any more, and it is removed.',
    todo: 'Nothing.',
    shows: DERIVED,
  },
  DerivedServiceNotOffered: {
    means: 'A site without Kubernetes has no consumers of Services, so none are derived.',
    todo: 'Remove the annotation, and call the name in clusterset.local.',
    shows: DERIVED,
  },
  ExposesNothing: {
    means: 'This cluster lets other members call nothing, so it exports nothing.',
    todo: 'If not intended, set `spec.exposure` of the site file to `exports`.',
    shows: ['condition Valid of ServiceExport', 'event on ServiceExport'],
  },
  OfferedToNobody: {
    means: 'Access policies offer the service to no other member.',
    todo: 'If not intended, name callers in an AccessPolicy.',
    shows: ['condition sealane.io/Imported of ServiceExport'],
  },
  PolicyInForce: {
    means: 'The access policy is in force.',
    todo: 'Nothing.',
    shows: POLICY,
  },
  PolicyVersionNotKept: {
    means:
      'The CRD of an earlier release drops `status.inForce`: parts that start while the policy is invalid do not know its last version. Access policies then close, traffic policies do not count.',
    todo: 'Apply the CRDs of this release.',
    shows: [
      ...POLICY,
      'condition Valid of TrafficPolicy',
      'condition Valid of ClusterTrafficPolicy',
      'log of the agent',
    ],
  },
  PolicyNamesNobody: {
    means: 'The access policy lets in no other member.',
    todo: 'If not intended, compare its selectors with the labels of the Clusters.',
    shows: OF_NAMESPACE,
  },
  OfferCut: {
    means:
      'The access policies of a service name more members or namespaces than its offer carries. The rest may not call.',
    todo: 'Select namespaces by a common label, or let in all namespaces of a cluster.',
    shows: ['condition sealane.io/Complete of ServiceExport'],
  },
  PolicyNamesUnknown: {
    means: 'The access policy names clusters that are no members yet.',
    todo: 'Check the ids.',
    shows: OF_NAMESPACE,
  },
  PolicyTargetMissing: {
    means: 'The access policy names services that are not exported.',
    todo: 'Check the names.',
    shows: OF_NAMESPACE,
  },
  PolicyNotUnderstood: {
    means: 'This release does not understand a part of the access policy, which lets nobody in.',
    todo: 'Correct the fields that the message names.',
    shows: POLICY,
  },
  PolicyFileInvalid: {
    means: 'A file of a site that may hold an access policy was never valid. It lets nobody in until it is.',
    todo: 'Correct the file; `sealane status` names the place.',
    shows: [...POLICY, 'log of the agent'],
  },
  PolicyIgnored: {
    means: 'Only the ClusterAccessPolicy `default` counts.',
    todo: 'Delete the other one.',
    shows: ['condition Valid of ClusterAccessPolicy'],
  },
  Pending: {
    standard: 'KEP-1645',
    means: 'The agent waits for something that the message names.',
    todo: 'If it lasts, check that the agent reaches the broker.',
    shows: [
      'condition Ready of ServiceExport',
      'condition sealane.io/Imported of ServiceExport',
      'condition Ready of ServiceImport',
    ],
  },
  Exported: {
    standard: 'KEP-1645',
    means: 'The broker has stored the export.',
    todo: 'Nothing.',
    shows: ['condition Ready of ServiceExport', 'event on ServiceExport'],
  },
  Failed: {
    standard: 'KEP-1645',
    means: 'The broker refuses the export or its endpoints.',
    todo: 'Look up the reason in the message, and change the Service.',
    shows: ['condition Ready of ServiceExport'],
  },
  Refused: {
    means: 'The broker or the agent does not accept the object.',
    todo: 'Look up the reason in the note.',
    shows: ['event on ServiceExport', 'event on Membership', 'event on ClusterProperty'],
  },
  NoConflicts: {
    standard: 'KEP-1645',
    means: 'All exports of the service agree.',
    todo: 'Nothing.',
    shows: ['condition Conflict of ServiceExport'],
  },
  Conflict: {
    means: 'The exports of one service disagree.',
    todo: 'Look up the reasons at the start of the note.',
    shows: ['event on ServiceExport'],
  },
  ConflictCleared: {
    means: 'The exports of the service agree again.',
    todo: 'Nothing.',
    shows: ['event on ServiceExport'],
  },
  PortConflict: { standard: 'KEP-1645', means: 'The exports have different ports.', todo: AGREE, shows: CONFLICT },
  TypeConflict: {
    standard: 'KEP-1645',
    means: 'The service is headless in some clusters and not in others.',
    todo: AGREE,
    shows: CONFLICT,
  },
  SessionAffinityConflict: {
    standard: 'KEP-1645',
    means: 'The exports have different session affinities.',
    todo: AGREE,
    shows: CONFLICT,
  },
  SessionAffinityConfigConflict: {
    standard: 'KEP-1645',
    means: 'The exports have different session affinity timeouts.',
    todo: AGREE,
    shows: CONFLICT,
  },
  AnnotationsConflict: {
    standard: 'KEP-1645',
    means: 'The exports have different exported annotations.',
    todo: AGREE,
    shows: CONFLICT,
  },
  LabelsConflict: {
    standard: 'KEP-1645',
    means: 'The exports have different exported labels.',
    todo: AGREE,
    shows: CONFLICT,
  },
  InternalTrafficPolicyConflict: {
    standard: 'KEP-1645',
    means: 'The exports have different internal traffic policies.',
    todo: AGREE,
    shows: CONFLICT,
  },
  TrafficDistributionConflict: {
    standard: 'KEP-1645',
    means: 'The exports have different traffic distributions.',
    todo: AGREE,
    shows: CONFLICT,
  },
  IPFamilyConflict: {
    standard: 'KEP-1645',
    means: 'The exports have different IP families, so a caller may reach only some backends.',
    todo: 'Give the Service the same IP families in all clusters.',
    shows: CONFLICT,
  },
  ClusterSelectorsConflict: {
    standard: 'KEP-5939',
    means: 'The exports have different cluster selectors, or the same ones in another order.',
    todo: AGREE,
    shows: CONFLICT,
  },
  Imported: {
    means: 'At least one other member imports the service.',
    todo: 'Nothing.',
    shows: ['condition sealane.io/Imported of ServiceExport', 'event on ServiceExport', 'event on ServiceImport'],
  },
  NotImported: {
    means: "No other member imports the service. The message has each member's reason.",
    todo: 'Look up the reason, and act in that member.',
    shows: ['condition sealane.io/Imported of ServiceExport', 'event on ServiceExport'],
  },
  NotTold: {
    means: 'No other member has reported yet whether it imports the service.',
    todo: 'Wait. Members of earlier releases never report it: upgrade them.',
    shows: ['condition sealane.io/Imported of ServiceExport'],
  },
  NoOtherMember: {
    means: 'The clusterset has no other member.',
    todo: 'Join another cluster.',
    shows: ['condition sealane.io/Imported of ServiceExport'],
  },
  NamespaceMissing: {
    means: 'The namespace does not exist, or is terminating, in the importing cluster.',
    todo: 'Create the namespace in the importing cluster.',
    shows: NOT_IMPORTED,
  },
  NamespaceNotAllowed: {
    status: 'InvalidArgument',
    means: 'The namespace is a system namespace, or the cluster excludes it: it is neither exported nor imported.',
    todo: 'Use another one, or allow it: `--allow-namespace` of the broker and of `sealane join`, or `allowedNamespaces` of the site file.',
    shows: [
      ...NOT_IMPORTED,
      'condition Valid of ServiceExport',
      'condition Ready of ServiceExport',
      'refusal by the broker',
      'log of the agent',
      'log of the broker',
    ],
  },
  NameTaken: {
    means: 'A ServiceImport that Sealane did not create, or another Endpoint, already has the name.',
    todo: 'Remove or rename the ServiceImport that Sealane did not create.',
    shows: [...NOT_IMPORTED, 'log of the agent'],
  },
  IPFamilyNotSupported: {
    means: 'The service has no address of an IP family that pods of the importing cluster use.',
    todo: 'Give the exported Service a family that both clusters have.',
    shows: [...NOT_IMPORTED, 'condition Ready of ServiceImport', 'event on ServiceImport', 'output of the command'],
  },
  ImportRefused: {
    means: 'The API server of the importing cluster refuses the ServiceImport.',
    todo: 'Read the agent log there: an admission policy or a quota may refuse the object.',
    shows: NOT_IMPORTED,
  },
  ExportRefused: {
    means: 'The importing agent finds the export malformed.',
    todo: 'The agent log there names the field. Upgrade the older of the two clusters.',
    shows: NOT_IMPORTED,
  },
  ClusterNotUsable: {
    means: "The importing cluster cannot use the exporter's addresses: they overlap its own.",
    todo: 'The agent log there names the addresses. Join the exporter again.',
    shows: NOT_IMPORTED,
  },
  BackendDown: {
    means: "The check of a backend fails at the site's acting agent: no cluster calls it.",
    todo: 'Start the program at that address (`sealane service list`), or correct the check (`sealane service add`).',
    shows: ['log of the agent', 'output of the command'],
  },
  Ready: {
    standard: 'KEP-1645',
    means: 'The import is complete: it has its clusterset IP, or is headless and DNS answers it.',
    todo: 'Nothing.',
    shows: ['condition Ready of ServiceImport'],
  },
} as const satisfies ReasonTable
