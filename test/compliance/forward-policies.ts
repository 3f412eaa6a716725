/** The suite for every ForwardPolicies. */
import type { Test } from 'tap'
import type { ForwardPolicies, ForwardPolicy } from '../../kernel/xfrm/forward-policies.ts'
import { formatPolicy } from '../../kernel/xfrm/forward-policies.ts'
import { ADMITTED_MARK } from '../../model/kernel-ids.ts'

const PAIRS = [
  { source: '244.1.0.0/16', destination: '10.42.0.0/16' },
  { source: '244.1.7.9/32', destination: '10.42.0.0/16' },
  { source: '0.0.0.0/0', destination: '10.42.7.7/32' },
  { source: 'fd42:2::/48', destination: 'fd42:1::/48' },
  { source: 'fd42:2::9/128', destination: 'fd42:1::9/128' },
]
const KINDS: readonly Omit<ForwardPolicy, 'source' | 'destination'>[] = [
  { action: 'allow', mark: ADMITTED_MARK },
  { action: 'allow', outputIndex: 1 },
  { action: 'block' },
]

export function forwardPoliciesCompliance(t: Test, make: () => ForwardPolicies): void {
  t.test('policies', async (t) => {
    const policies = make()
    const listed = async (): Promise<string[]> => (await policies.list()).ours.map(formatPolicy).sort()
    t.strictSame(await listed(), [], 'none at first')
    const all = PAIRS.flatMap((pair) => KINDS.map((kind): ForwardPolicy => ({ ...pair, ...kind })))
    for (const policy of all) await policies.add(policy)
    t.strictSame(await listed(), all.map(formatPolicy).sort())
    for (const policy of all) await t.rejects(policies.add(policy), { code: 'EEXIST' }, formatPolicy(policy))

    const before = (await policies.list()).ours
    for (const policy of all) await policies.refresh(policy)
    const found = (await policies.list()).ours
    const numbers = (of: typeof found): number[] => of.map(({ index }) => index).sort((a, b) => a - b)
    t.strictSame(numbers(found), numbers(before), 'a refreshed policy keeps its number')
    const first = found.find(({ mark }) => mark !== undefined)
    if (first === undefined) throw new Error('no policy with a mark')
    await policies.remove(first)
    t.strictSame(
      await listed(),
      all
        .map(formatPolicy)
        .filter((text) => text !== formatPolicy(first))
        .sort(),
      'only this one',
    )
    await t.rejects(policies.remove(first), { code: 'ENOENT' })
    for (const policy of found) if (policy !== first) await policies.remove(policy)
    t.strictSame(await listed(), [])
  })

  t.test('a policy between families is refused', async (t) => {
    const wrong = { source: '244.1.0.0/16', destination: 'fd42:1::/48', action: 'block' } as const
    await t.rejects(make().add(wrong), { code: 'EINVAL', message: /prefixes of one family/ })
    await t.rejects(make().add({ ...wrong, destination: '10.42.0.7' }), { code: 'EINVAL' })
  })
}
