/** What Kubernetes says of its nodes; plain machines have nobody who does. */
import { LABEL_GATEWAY } from '../../model/lanes/gateway-node.ts'
import type { Finding } from '../finding.ts'
import { type World, seenAt, seenSubject } from '../world.ts'

export function nodes({ objects }: World): readonly Finding[] {
  return (objects.Node ?? []).flatMap((node): readonly Finding[] => {
    const { status, metadata } = node.object
    const ready = status?.conditions?.find(({ type }) => type === 'Ready')
    if (ready === undefined || ready.status === 'True') return []
    const isGateway = metadata.labels?.[LABEL_GATEWAY] !== undefined
    return [
      {
        reason: 'NodeNotReady',
        severity: isGateway ? 'degraded' : 'notice',
        subject: seenSubject('Node', node),
        seen: `Ready is ${ready.status}: ${ready.message ?? ready.reason ?? 'no reason is given'}`,
        ...seenAt(node, ready.lastTransitionTime),
      },
    ]
  })
}
