/**
 * Checks whether this user may install at all, before anything is changed. So a user with read-only access leaves
 * nothing half done.
 */
import { UserError } from '../../runtime/runtime.ts'
import type { BrokerForm } from '../../install/values/values.ts'
import type { ClusterAdmin } from '../context/context.ts'

export interface Right {
  readonly verb: string
  readonly group: string
  readonly resource: string
  readonly namespace?: string
}

/** The rights that installing a member needs. */
export function memberRights(namespace: string): readonly Right[] {
  return [
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

/** The rights that installing a broker in this form needs. All of its objects are in its namespace. */
export function brokerRights(namespace: string, form: BrokerForm = 'own'): readonly Right[] {
  return [
    ...applying('', 'namespaces'),
    ...within(namespace, [
      ...applying('', 'serviceaccounts', 'services'),
      ...(form === 'own' ? applying('', 'persistentvolumeclaims') : applying('apps', 'deployments')),
      ...(form === 'given' ? [] : applying('apps', 'statefulsets')),
      ...(form === 'included' ? applying('', 'secrets') : []),
      ...applying('policy', 'poddisruptionbudgets'),
      ...applying('networking.k8s.io', 'networkpolicies'),
    ]),
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
    const { verb, group, resource } = right
    const review = {
      apiVersion: 'authorization.k8s.io/v1',
      kind: 'SelfSubjectAccessReview',
      metadata: { name: '' },
      spec: { resourceAttributes: { verb, group, resource, namespace: right.namespace ?? '' } },
    }
    const answer = await admin.create(review, { dryRun: false }, signal)
    const { allowed } = answer['status'] as { allowed?: boolean }
    const what = `${resource}${group === '' ? '' : `.${group}`}`
    if (allowed !== true) missing.set(what, [...(missing.get(what) ?? []), verb])
  }
  if (missing.size === 0) return
  const said = [...missing].map(([what, verbs]) => `${verbs.join(' and ')} ${what}`)
  throw new UserError(`${admin.title}: this user may not ${said.join(', ')}`, {
    hint: 'use a kubeconfig of a cluster administrator; nothing was changed',
  })
}
