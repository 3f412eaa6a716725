import t from 'tap'
import { findCondition, isConditionTrue, setCondition, setConditions } from '../../model/conditions.ts'

const AT = Date.parse('2026-11-20T08:00:00.500Z')
const LATER = AT + 60_000
const VALID = { type: 'Valid', status: 'True', reason: 'Valid', message: '' } as const
const INVALID = { type: 'Valid', status: 'False', reason: 'NoService', message: 'no Service web' } as const

t.test('a condition keeps its time until its status changes', async (t) => {
  const first = setCondition([], VALID, AT)
  t.same(first, [{ ...VALID, lastTransitionTime: '2026-11-20T08:00:00Z' }])
  t.equal(setCondition(first, VALID, LATER), first, 'the very same list')

  const reworded = setCondition(first, { ...VALID, message: 'fine' }, LATER)
  t.equal(findCondition(reworded, 'Valid')?.lastTransitionTime, '2026-11-20T08:00:00Z')
  t.equal(findCondition(reworded, 'Valid')?.message, 'fine')

  const flipped = setCondition(reworded, INVALID, LATER)
  t.same(flipped, [{ ...INVALID, lastTransitionTime: '2026-11-20T08:01:00Z' }])
})

t.test('others are left where they are', async (t) => {
  const ready = { type: 'Ready', status: 'False', reason: 'Pending', message: '' } as const
  const list = setConditions([], [VALID, ready], AT)
  const next = setCondition(list, INVALID, LATER)
  t.same(
    next.map((c) => `${c.type}=${c.status}`),
    ['Valid=False', 'Ready=False'],
  )
  t.equal(next[1], list[1])
})

t.test('reading', async (t) => {
  const list = setCondition([], VALID, AT)
  t.equal(isConditionTrue(list, 'Valid'), true)
  t.equal(isConditionTrue(list, 'Ready'), false)
  t.equal(isConditionTrue(undefined, 'Valid'), false)
  t.equal(findCondition(undefined, 'Valid'), undefined)
})

t.test('a message longer than the API takes is cut', async (t) => {
  const list = setCondition([], { ...VALID, message: 'x'.repeat(40_000) }, AT)
  t.equal(list[0]?.message.length, 32_768)
  t.equal(setCondition(list, { ...VALID, message: 'x'.repeat(40_000) }, LATER), list)
})
