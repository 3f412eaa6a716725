import fc from 'fast-check'
import t from 'tap'
import { KEEP_MS, type InterestPlan, planInterest } from '../../../agent/mirror/plan-interest.ts'
import { MAX_INTEREST, interestProblem } from '../../../model/records.ts'

const names = ({ interest }: InterestPlan): string => (interest === undefined ? 'all' : [...interest].sort().join())

t.test('what exists is asked for, and what is gone for a while longer', (t) => {
  const first = planInterest(undefined, new Set(['shop', 'blue']), 1000)
  t.equal(names(first), 'blue,shop')
  const gone = planInterest(first, new Set(['shop']), 2000)
  t.equal(names(gone), 'blue,shop')
  const still = planInterest(gone, new Set(['shop']), 2000 + KEEP_MS - 1)
  t.equal(names(still), 'blue,shop')
  t.equal(names(planInterest(still, new Set(['shop']), 2000 + KEEP_MS)), 'shop', 'since it was first missed')
  const back = planInterest(still, new Set(['shop', 'blue']), 2000 + KEEP_MS - 1)
  t.equal(names(planInterest(back, new Set(['shop']), 2000 + KEEP_MS)), 'blue,shop', 'it was there in between')
  t.equal(names(planInterest(undefined, new Set(), 0)), '', 'none is not all')
  t.end()
})

t.test('more than can be asked for: everything', (t) => {
  const many = new Set(Array.from({ length: MAX_INTEREST + 1 }, (_, i) => `n${i}`))
  const plan = planInterest(undefined, many, 0)
  t.equal(names(plan), 'all')
  t.match(plan.problem, /^10001 namespaces: expected at most 10000/)
  many.delete('n7')
  const fits = planInterest(plan, many, 1)
  t.equal(fits.interest?.size, MAX_INTEREST)
  const one = new Set([...many, 'new'])
  one.delete('n8')
  t.equal(planInterest(fits, one, 2).interest?.has('n8'), false, 'no room for what is gone')
  t.match(planInterest(undefined, new Set(['Shop']), 0), { interest: undefined, problem: /"Shop"/ })
  t.end()
})

t.test('whatever comes and goes, what exists is asked for, and nothing is kept for ever', (t) => {
  const existing = fc.subarray(['a', 'b', 'c', 'd']).map((list) => new Set(list))
  fc.assert(
    fc.property(fc.array(fc.record({ existing, ms: fc.nat(KEEP_MS) }), { minLength: 1 }), (steps) => {
      let plan: InterestPlan | undefined
      let now = 0
      const seen = new Map<string, number>()
      for (const step of steps) {
        now += step.ms
        plan = planInterest(plan, step.existing, now)
        for (const name of step.existing) seen.set(name, now)
        for (const name of step.existing) if (plan.interest?.has(name) !== true) return false
        for (const name of plan.interest ?? []) if (!seen.has(name)) return false
        if (plan.interest === undefined || interestProblem(plan.interest) !== undefined) return false
      }
      const after = planInterest(planInterest(plan, new Set(), now), new Set(), now + KEEP_MS)
      return after.interest?.size === 0 && after.goneSince.size === 0
    }),
  )
  t.end()
})
