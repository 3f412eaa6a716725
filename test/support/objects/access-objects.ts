/** Access policies for tests. */
import type { AccessPolicy, ClusterAccessPolicy, Condition } from '../../../model/objects.ts'

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

/** The conditions of a policy whose agent has looked at this generation last. */
export function observedAt(observedGeneration: number): Condition[] {
  const valid = { type: 'Valid', status: 'True', reason: 'PolicyInForce', message: '' } as const
  return [{ ...valid, observedGeneration, lastTransitionTime: '2026-01-01T00:00:00Z' }]
}
