import t from 'tap'
import { RefusedMembership } from '../../../../agent/membership/refusal.ts'
import type { ObjectEvent } from '../../../../kubeapi/cluster-api.ts'
import { CapturingLogger } from '../../../../runtime/logging/capturing-logger.ts'

t.test('each word of the broker is told once', (t) => {
  const logger = new CapturingLogger()
  const events: ObjectEvent[] = []
  const notes: (string | undefined)[] = []
  const refused = new RefusedMembership({
    logger,
    api: { report: (event) => void events.push(event) },
    note: (reason) => void notes.push(reason),
  })
  const words = [undefined, undefined, 'evicted at noon', 'evicted at noon', undefined, 'evicted at noon', 'replaced']
  for (const word of words) refused.onReason(word)
  t.same(notes, [undefined, 'evicted at noon', undefined, 'evicted at noon', 'replaced'])
  const reported = ['evicted at noon', 'evicted at noon', 'replaced']
  t.same(
    events,
    reported.map((reason) => ({
      regarding: { kind: 'Membership', name: 'self' },
      type: 'Warning',
      reason: 'Refused',
      note: `the broker refuses this cluster: ${reason}`,
    })),
  )
  t.same(
    logger.lines.map(({ level, message, fields }) => [level, message, fields['why']]),
    reported.map((reason) => ['error', 'the broker refuses this cluster', reason]),
  )
  t.end()
})
