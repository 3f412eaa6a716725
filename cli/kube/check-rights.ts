/** May this user install at all? Asked before anything is changed, so that a read-only access leaves nothing half done. */
import { UserError } from '../../runtime/user-error.ts'
import type { ClusterAdmin } from './admin.ts'

interface Right {
  readonly verb: string
  readonly group: string
  readonly resource: string
  readonly namespace?: string
}

function needed(namespace: string): readonly Right[] {
  return [
    { verb: 'patch', group: 'apiextensions.k8s.io', resource: 'customresourcedefinitions' },
    { verb: 'patch', group: '', resource: 'namespaces' },
    { verb: 'patch', group: '', resource: 'nodes' },
    { verb: 'patch', group: 'rbac.authorization.k8s.io', resource: 'clusterroles' },
    { verb: 'patch', group: 'rbac.authorization.k8s.io', resource: 'clusterrolebindings' },
    { verb: 'patch', group: 'rbac.authorization.k8s.io', resource: 'roles', namespace },
    { verb: 'patch', group: 'admissionregistration.k8s.io', resource: 'validatingadmissionpolicies' },
    { verb: 'patch', group: '', resource: 'configmaps', namespace },
    { verb: 'patch', group: 'apps', resource: 'daemonsets', namespace },
    { verb: 'patch', group: 'apps', resource: 'deployments', namespace },
    { verb: 'create', group: '', resource: 'secrets', namespace },
  ]
}

/** Throws UserError listing what is not allowed. */
export async function checkRights(admin: ClusterAdmin, namespace: string, signal: AbortSignal): Promise<void> {
  const missing: string[] = []
  for (const right of needed(namespace)) {
    const { verb, group, resource } = right
    const review = {
      apiVersion: 'authorization.k8s.io/v1',
      kind: 'SelfSubjectAccessReview',
      metadata: { name: '' },
      spec: { resourceAttributes: { verb, group, resource, namespace: right.namespace ?? '' } },
    }
    const answer = await admin.create(review, { dryRun: false }, signal)
    const { allowed } = answer['status'] as { allowed?: boolean }
    if (allowed !== true) missing.push(`${verb} ${resource}${group === '' ? '' : `.${group}`}`)
  }
  if (missing.length === 0) return
  throw new UserError(`${admin.title}: this user may not ${missing.join(', ')}`, {
    hint: 'use a kubeconfig of a cluster administrator; nothing was changed',
  })
}
