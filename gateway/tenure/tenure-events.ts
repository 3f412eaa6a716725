/** What people are told on the Nodes when a lane changes hands. */
import type { ClusterApi } from '../../kubeapi/cluster-api.ts'
import type { LeaseView } from './plan-tenure.ts'

interface LaneOfNode {
  readonly node: string
  readonly lane: number
}

/** This node has taken the lane. `before` is the Lease as it was. */
export function reportTaken(api: ClusterApi, { node, lane }: LaneOfNode, before: LeaseView | undefined): void {
  const holder = before?.holder ?? ''
  const isGiven = before?.offer !== undefined
  const why = holder === '' ? 'nobody had it' : isGiven ? `${holder} gives it: ${before.offer}` : `${holder} is gone`
  const note = `this node is the gateway of lane ${lane} now; ${why}`
  api.report({ regarding: { kind: 'Node', name: node }, type: 'Normal', reason: 'LaneTaken', note })
  if (holder === '' || isGiven) return
  const lost = `lane ${lane} of this node is lost; ${node} takes it`
  api.report({ regarding: { kind: 'Node', name: holder }, type: 'Warning', reason: 'LaneHolderLost', note: lost })
}

/** Another node has the lane, and this one goes on until that carries. */
export function reportHandedOver(api: ClusterApi, { node, lane }: LaneOfNode, holder: string): void {
  const note = `${holder} has lane ${lane} now; this node goes on until it carries`
  api.report({ regarding: { kind: 'Node', name: node }, type: 'Normal', reason: 'LaneHandedOver', note })
}
