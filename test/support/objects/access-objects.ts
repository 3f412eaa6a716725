/** Access policies for tests. */
import type { AccessPolicy, ClusterAccessPolicy } from '../../../model/objects.ts'

/** `at` is `namespace/name`. */
export function accessPolicy(at: string, spec: AccessPolicy['spec'], generation?: number): AccessPolicy {
  const [namespace = '', name = ''] = at.split('/')
  const metadata = { namespace, name, ...(generation === undefined ? {} : { generation }) }
  return { apiVersion: 'sealane.io/v1alpha1', kind: 'AccessPolicy', metadata, spec }
}

export function clusterAccessPolicy(value: 'allow' | 'deny', name = 'default'): ClusterAccessPolicy {
  return {
    apiVersion: 'sealane.io/v1alpha1',
    kind: 'ClusterAccessPolicy',
    metadata: { name },
    spec: { default: value },
  }
}
