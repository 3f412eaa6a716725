/** Pods of the node `worker`. */
import type { Pod } from '../../../model/objects.ts'

interface PodChange {
  readonly spec?: NonNullable<Pod['spec']>
  readonly phase?: string
}

/** `at` is `namespace/name`. */
export function podObject(at: string, ip: string, { spec, phase = 'Running' }: PodChange = {}): Pod {
  const [namespace = '', name = ''] = at.split('/')
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { namespace, name },
    spec: spec ?? { nodeName: 'worker' },
    status: { phase, podIP: ip, podIPs: [{ ip }] },
  }
}
