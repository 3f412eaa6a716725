/** When a key is rotated, and what the rotation waits for. */
import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import {
  GIVE_UP_MS,
  KNOWN_WITHIN_MS,
  type RotatingLink,
  type RotationFacts,
  SETTLE_MS,
  planRotation,
} from '../../../gateway/rotation/plan-rotation.ts'

const NOW = 1_000_000_000
const DAY = 86_400_000
const link = (cluster: string, change: Partial<RotatingLink> = {}): RotatingLink => {
  return { cluster, up: true, follows: true, knows: true, ...change }
}

const CALM: RotationFacts = {
  nowMs: NOW,
  ageMs: DAY,
  maxAgeMs: 30 * DAY,
  asked: false,
  begun: false,
  published: true,
  pausedUntilMs: -Infinity,
  others: [],
  lane: 1,
  links: [link('paris')],
}
const ASKED = { ...CALM, asked: true, dueSinceMs: NOW }
const ANNOUNCED = { ...ASKED, announcedMs: NOW - SETTLE_MS, dueSinceMs: NOW - SETTLE_MS }
const LATE = { ...ANNOUNCED, announcedMs: NOW - KNOWN_WITHIN_MS }
const UNKNOWN = [link('paris'), link('tokyo', { knows: false })]

const ROWS: [say: string, facts: RotationFacts, want: string][] = [
  ['nothing is due', CALM, 'rest'],
  ['old enough', { ...CALM, ageMs: 30 * DAY }, 'announce'],
  ['never by age', { ...CALM, ageMs: 300 * DAY, maxAgeMs: 0 }, 'rest'],
  ['asked for', ASKED, 'announce'],
  ['an earlier run has begun', { ...CALM, begun: true }, 'announce'],
  ['another gateway goes first', { ...ASKED, others: [3] }, 'wait OtherGatewayRotates'],
  ['both have begun: the lower number goes first', { ...ANNOUNCED, others: [0] }, 'wait OtherGatewayRotates'],
  ['both have begun: this one is it', { ...ANNOUNCED, others: [2] }, 'switch'],
  ['not written yet', { ...ANNOUNCED, published: false }, 'wait KeyAnnounced'],
  ['others may begin at the same moment', { ...ANNOUNCED, announcedMs: NOW - 1 }, 'wait KeyAnnounced'],
  ['all know it', ANNOUNCED, 'switch'],
  ['nobody to tell', { ...ANNOUNCED, links: [] }, 'switch'],
  ['one does not know it yet', { ...ANNOUNCED, links: UNKNOWN }, 'wait KeyAnnounced'],
  ['nor after a minute', { ...LATE, links: UNKNOWN }, 'postpone FarEndsWithoutKey'],
  ['nor after a day', { ...LATE, links: UNKNOWN, dueSinceMs: NOW - GIVE_UP_MS }, 'switch'],
  ['one that cannot follow is not waited for', { ...ANNOUNCED, links: [link('old', { follows: false })] }, 'switch'],
  [
    'nor one that is not up',
    { ...ANNOUNCED, links: [link('paris'), link('x', { up: false, knows: false })] },
    'switch',
  ],
  ['no link is up', { ...ANNOUNCED, links: [link('paris', { up: false })] }, 'wait KeyAnnounced'],
  ['nor after a minute', { ...LATE, links: [link('paris', { up: false })] }, 'postpone FarEndsWithoutKey'],
  ['postponed just now', { ...ASKED, pausedUntilMs: NOW + 1, links: UNKNOWN }, 'wait FarEndsWithoutKey'],
  ['and its time is over', { ...ASKED, pausedUntilMs: NOW }, 'announce'],
]

t.test('steps', async (t) => {
  for (const [say, facts, want] of ROWS) {
    const step = planRotation(facts)
    t.equal('reason' in step ? `${step.is} ${step.reason}` : step.is, want, say)
  }
  t.match(planRotation({ ...LATE, links: UNKNOWN }), { message: 'clusters that do not have the next key yet: tokyo' })
})

t.test('of two gateways of a cluster one changes at a time, and no far end is cut off for the asking', async () => {
  const links = fc.array(
    fc.record({ cluster: fc.constantFrom('a', 'b'), up: fc.boolean(), follows: fc.boolean(), knows: fc.boolean() }),
    { maxLength: 4 },
  )
  const ms = fc.integer({ min: 0, max: GIVE_UP_MS - 1 })
  fc.assert(
    fc.property(links, links, ms, ms, (ours, theirs, announced, due) => {
      const facts = { ...ASKED, announcedMs: NOW - announced, dueSinceMs: NOW - due }
      const steps = [
        planRotation({ ...facts, lane: 0, others: [1], links: ours }),
        planRotation({ ...facts, lane: 1, others: [0], links: theirs }),
      ]
      assert.notEqual(steps[1]?.is, 'switch')
      const cutOff = ours.some(({ up, follows, knows }) => up && follows && !knows)
      assert.ok(!cutOff || steps[0]?.is !== 'switch')
    }),
  )
})
