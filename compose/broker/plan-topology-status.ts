/** Plans the conditions of a Topology object from what the broker made of it. Pure. */
import { type ConditionFinding, TOPOLOGY_NAME, type TopologyObject, setConditions } from '../../model/model.ts'

export type TopologyOutcome =
  /** It counts. `number` is that of the last change of the topology at the broker. */
  | { readonly t: 'applied'; readonly number: number }
  /** What counted before stays. `message` names the field, the value and what was expected. */
  | {
      readonly t: 'refused'
      readonly reason: 'TopologyInvalid' | 'TopologyNotSupported' | 'TopologyNotFollowed'
      readonly message: string
    }
  /** It has another name than the one that counts. */
  | { readonly t: 'ignored' }

/** The object with its new conditions. Undefined if they are there already. */
export function planTopologyStatus(
  object: TopologyObject,
  outcome: TopologyOutcome,
  nowMs: number,
): TopologyObject | undefined {
  const before = object.status?.conditions ?? []
  const { generation } = object.metadata
  const seen = generation === undefined ? {} : { observedGeneration: generation }
  const findings = findingsOf(outcome).map((finding) => ({ ...finding, ...seen }))
  const conditions = setConditions(before, findings, nowMs)
  return conditions === before ? undefined : { ...object, status: { ...object.status, conditions } }
}

const STAYS = 'the topology that counted before stays'

function findingsOf(outcome: TopologyOutcome): readonly ConditionFinding[] {
  if (outcome.t === 'ignored') {
    const message = `metadata.name: expected ${TOPOLOGY_NAME}`
    const finding = { status: 'False', reason: 'TopologyNameUnknown', message } as const
    return [
      { type: 'Accepted', ...finding },
      { type: 'Applied', ...finding },
    ]
  }
  if (outcome.t === 'refused' && outcome.reason === 'TopologyInvalid') {
    return [
      { type: 'Accepted', status: 'False', reason: 'TopologyInvalid', message: outcome.message },
      { type: 'Applied', status: 'False', reason: 'TopologyInvalid', message: STAYS },
    ]
  }
  const accepted = { type: 'Accepted', status: 'True', reason: 'TopologyAccepted', message: '' } as const
  if (outcome.t === 'refused') {
    const message = `${outcome.message}; ${STAYS}`
    return [accepted, { type: 'Applied', status: 'False', reason: outcome.reason, message }]
  }
  const message = `change ${outcome.number} of the topology at the broker`
  return [accepted, { type: 'Applied', status: 'True', reason: 'TopologyApplied', message }]
}
