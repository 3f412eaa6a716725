/** What is said on this cluster's own Cluster about its DNS. Pure. */
import { CONDITION_CLUSTER_DNS, type ConditionFinding, setCondition } from '../../model/conditions.ts'
import type { Cluster } from '../../model/objects.ts'
import { CLUSTERSET_ZONE } from '../../model/spec-constants.ts'
import type { ClusterDnsAnswer } from './ask-resolver.ts'

/** The Cluster with its status as it is to be; undefined when it is right. */
export function planDnsStatus(own: Cluster, answer: ClusterDnsAnswer, nowMs: number): Cluster | undefined {
  const before = own.status?.conditions ?? []
  const conditions = setCondition(before, dnsFinding(answer), nowMs)
  return conditions === before ? undefined : { ...own, status: { ...own.status, conditions } }
}

function dnsFinding(answer: ClusterDnsAnswer): ConditionFinding {
  const type = CONDITION_CLUSTER_DNS
  if (answer.answers) {
    const message = `the cluster's DNS hands ${CLUSTERSET_ZONE} to Sealane`
    return { type, status: 'True', reason: 'Answers', message }
  }
  const message = `asked for ${CLUSTERSET_ZONE}, the cluster's DNS says ${answer.said}`
  return { type, status: 'False', reason: 'DoesNotAnswer', message }
}
