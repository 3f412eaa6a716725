/** Reasons about exported and imported services. */
import type { ReasonTable } from './reason-row.ts'

const NOT_IMPORTED = ['condition sealane.io/Imported of ServiceExport', 'metric sealane_agent_not_imported'] as const
const CONFLICT = ['condition Conflict of ServiceExport', 'event on ServiceExport'] as const
const AGREE = 'Give the exports of all clusters the same value. Until then a rule decides, which the message names.'

export const SERVICE_REASONS = {
  Valid: {
    standard: 'KEP-1645',
    means: 'The Service exists and can be exported.',
    todo: 'Nothing.',
    shows: ['condition Valid of ServiceExport'],
  },
  NoService: {
    standard: 'KEP-1645',
    means: 'No Service has the namespace and name of the ServiceExport, or the name is not a valid DNS name.',
    todo: 'Create the Service, or remove the ServiceExport.',
    shows: ['condition Valid of ServiceExport', 'event on ServiceExport'],
  },
  InvalidServiceType: {
    standard: 'KEP-1645',
    means: 'The Service is of type ExternalName, which has no endpoints to export.',
    todo: 'Export a Service of another type.',
    shows: ['condition Valid of ServiceExport', 'event on ServiceExport'],
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
    means: 'The broker refuses the export or its endpoints; the message names the field and the reason.',
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
  Imported: {
    means: 'At least one other member imports the service.',
    todo: 'Nothing.',
    shows: ['condition sealane.io/Imported of ServiceExport', 'event on ServiceExport', 'event on ServiceImport'],
  },
  NotImported: {
    means: 'No other member imports the service; the message gives the reason for each member.',
    todo: 'Look up the reason, and act in the member that the message names.',
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
    means: 'The namespace is a system namespace, which Sealane neither exports nor imports.',
    todo: 'Use another namespace, or start the broker and the agents with --allow-namespace.',
    shows: [
      ...NOT_IMPORTED,
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
    shows: [...NOT_IMPORTED, 'condition Ready of ServiceImport', 'event on ServiceImport'],
  },
  ImportRefused: {
    means: 'The API server of the importing cluster refuses the ServiceImport.',
    todo: 'Read the agent log there: an admission policy or a quota may refuse the object.',
    shows: NOT_IMPORTED,
  },
  ExportRefused: {
    means: 'The importing agent finds the export malformed.',
    todo: 'Read the agent log there, which names the field. Upgrade the older of the two clusters.',
    shows: NOT_IMPORTED,
  },
  ClusterNotUsable: {
    means: 'The importing cluster cannot use the addresses of the exporter, because they overlap its own.',
    todo: 'Read the agent log there, which names the addresses. Join the exporter again.',
    shows: NOT_IMPORTED,
  },
  Ready: {
    standard: 'KEP-1645',
    means: 'The import is complete: it has its clusterset IP, or is headless and DNS answers it.',
    todo: 'Nothing.',
    shows: ['condition Ready of ServiceImport'],
  },
} as const satisfies ReasonTable
