import t from 'tap'
import { exportMessage } from '../../../cli/commands/show.ts'
import type { Condition } from '../../../model/objects.ts'

function condition(type: string, status: Condition['status'], message: string): Condition {
  return { type, status, reason: 'Pending', message, lastTransitionTime: '2026-01-01T00:00:00Z' }
}

t.test('what is said about an export', (t) => {
  const valid = condition('Valid', 'True', 'Service shop/web can be exported')
  const ready = condition('Ready', 'True', 'exported')
  const agreed = condition('Conflict', 'False', '')
  const ports =
    'ports: all ports are offered, the oldest export wins where they clash; c1 has http 80/TCP; c2 has http 81/TCP'
  const clash = condition('Conflict', 'True', ports)
  const imported = condition('sealane.io/Imported', 'True', 'imported by c2')
  const waiting = condition('Ready', 'False', 'waiting until the export is valid')
  const rows: [name: string, conditions: Condition[] | undefined, want: string][] = [
    ['nobody has looked', undefined, '-'],
    ['nothing to say', [valid, ready, agreed], '-'],
    ['imported', [valid, ready, agreed, imported], 'imported by c2'],
    ['a conflict names clusters', [valid, ready, clash, imported], `${ports}. imported by c2`],
    ['not confirmed', [valid, condition('Ready', 'False', 'not confirmed yet'), agreed], 'not confirmed yet'],
    ['not valid', [condition('Valid', 'False', 'no such Service'), waiting, agreed, imported], 'no such Service'],
  ]
  for (const [name, conditions, want] of rows) t.equal(exportMessage(conditions), want, name)
  t.end()
})
