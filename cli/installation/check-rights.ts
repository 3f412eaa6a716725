/**
 * Checks whether this user may install at all, before anything is changed. So a user with read-only access leaves
 * nothing half done.
 */
import { UserError } from '../../runtime/runtime.ts'
import type { BrokerForm } from '../../install/values/values.ts'
import { SCC } from '../../install/workloads/workloads.ts'
import type { ClusterAdmin } from '../context/context.ts'

export interface Right {
  readonly verb: string
  readonly group: string
  readonly resource: string
  readonly namespace?: string
  /** The name of the object. Undefined if the right is for objects of any name. */
  readonly name?: string
}

/**
 * True if the cluster admits pods by SecurityContextConstraints, as OpenShift, OKD and MicroShift do. The served kind is
 * the sign: what else these have differs.
 */
export function hasSecurityContextConstraints(
  admin: Pick<ClusterAdmin, 'knows'>,
  signal: AbortSignal,
): Promise<boolean> {
  return admin.knows({ apiVersion: 'security.openshift.io/v1', kind: 'SecurityContextConstraints' }, signal)
}

/** A user can grant the use only of those constraints that they may use themselves (RBAC refuses more). */
function grantingUse(...names: readonly string[]): readonly Right[] {
  const of = { verb: 'use', group: 'security.openshift.io', resource: 'securitycontextconstraints' }
  return names.map((name) => ({ ...of, name }))
}

/** The rights that installing a member needs. */
export function memberRights(namespace: string, isOpenShift = false): readonly Right[] {
  return [
    ...(isOpenShift ? applying('security.openshift.io', 'securitycontextconstraints') : []),
    ...within(namespace, isOpenShift ? grantingUse(SCC.unprivileged, SCC.node) : []),
    ...applying('apiextensions.k8s.io', 'customresourcedefinitions'),
    ...applying('', 'namespaces'),
    { verb: 'patch', group: '', resource: 'nodes' },
    ...applying('rbac.authorization.k8s.io', 'clusterroles', 'clusterrolebindings'),
    ...applying('admissionregistration.k8s.io', 'validatingadmissionpolicies', 'validatingadmissionpolicybindings'),
    ...within(namespace, [
      ...applying('rbac.authorization.k8s.io', 'roles', 'rolebindings'),
      ...applying('', 'configmaps', 'secrets', 'serviceaccounts', 'services', 'resourcequotas'),
      ...applying('apps', 'daemonsets', 'deployments'),
      ...applying('policy', 'poddisruptionbudgets'),
      ...applying('networking.k8s.io', 'networkpolicies'),
    ]),
  ]
}

/** What `join --prefer-local` needs besides. */
export function preferLocalRights(): readonly Right[] {
  return applying('sealane.io', 'clustertrafficpolicies')
}

/** The rights that installing a broker in this form needs. All of its objects are in its namespace. */
export function brokerRights(namespace: string, form: BrokerForm = 'own', isOpenShift = false): readonly Right[] {
  return [
    ...applying('', 'namespaces'),
    ...within(namespace, [
      ...(isOpenShift
        ? [...applying('rbac.authorization.k8s.io', 'rolebindings'), ...grantingUse(SCC.unprivileged)]
        : []),
      ...applying('', 'serviceaccounts', 'services'),
      ...(form === 'own' ? applying('', 'persistentvolumeclaims') : applying('apps', 'deployments')),
      ...(form === 'given' ? [] : applying('apps', 'statefulsets')),
      ...(form === 'included' ? applying('', 'secrets') : []),
      ...applying('policy', 'poddisruptionbudgets'),
      ...applying('networking.k8s.io', 'networkpolicies'),
    ]),
  ]
}

/** What the installation of a broker needs besides, if it follows object Topology. Who grants a right must have it. */
export function topologyRights(): readonly Right[] {
  return [
    { verb: 'get', group: 'apiextensions.k8s.io', resource: 'customresourcedefinitions' },
    ...applying('apiextensions.k8s.io', 'customresourcedefinitions'),
    ...applying('rbac.authorization.k8s.io', 'clusterroles', 'clusterrolebindings'),
    ...['get', 'list', 'watch'].map((verb) => ({ verb, group: 'sealane.io', resource: 'topologies' })),
  ]
}

/** Server-side apply of a new object needs both verbs. */
function applying(group: string, ...resources: readonly string[]): readonly Right[] {
  return resources.flatMap((resource) => ['create', 'patch'].map((verb) => ({ verb, group, resource })))
}

function within(namespace: string, rights: readonly Right[]): readonly Right[] {
  return rights.map((right) => ({ ...right, namespace }))
}

/** Throws UserError, which lists the missing rights. */
export async function checkRights(
  admin: Pick<ClusterAdmin, 'title' | 'create'>,
  rights: readonly Right[],
  signal: AbortSignal,
): Promise<void> {
  const missing = new Map<string, string[]>()
  for (const right of rights) {
    const { verb, group, resource, name = '' } = right
    const review = {
      apiVersion: 'authorization.k8s.io/v1',
      kind: 'SelfSubjectAccessReview',
      metadata: { name: '' },
      spec: { resourceAttributes: { verb, group, resource, name, namespace: right.namespace ?? '' } },
    }
    const answer = await admin.create(review, { dryRun: false }, signal)
    const { allowed } = answer['status'] as { allowed?: boolean }
    const what = `${resource}${group === '' ? '' : `.${group}`}${name === '' ? '' : ` ${name}`}`
    if (allowed !== true) missing.set(what, [...(missing.get(what) ?? []), verb])
  }
  if (missing.size === 0) return
  const said = [...missing].map(([what, verbs]) => `${verbs.join(' and ')} ${what}`)
  throw new UserError(`${admin.title}: this user may not ${said.join(', ')}`, {
    hint: 'use a kubeconfig of a cluster administrator; nothing was changed',
  })
}
