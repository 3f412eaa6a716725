/** What was written into the status of policies is read again once, and not written again where that would open. */
import t from 'tap'
import { WrittenVersions } from '../../../agent/publish/written-versions.ts'
import { versionToKeep } from '../../../model/access/policy-versions.ts'
import type { TrafficPolicy } from '../../../model/objects.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'

const { signal } = new AbortController()
const WRITE_AGAIN_MS = 600_000

/** A policy as it is written: `isValid` is what its condition says. */
function written(isValid: boolean, generation = 1, name = 'web'): TrafficPolicy {
  const base = {
    ...({ apiVersion: 'sealane.io/v1alpha1', kind: 'TrafficPolicy' } as const),
    metadata: { namespace: 'shop', name, uid: `u-${name}`, generation },
    spec: { order: [{ any: {} }] },
  }
  const condition = {
    ...({ type: 'Valid', status: isValid ? 'True' : 'False', message: '' } as const),
    reason: isValid ? ('TrafficPolicyInForce' as const) : ('TrafficPolicyInvalid' as const),
    ...{ observedGeneration: generation, lastTransitionTime: '2026-11-30T10:00:00Z' },
  }
  return { ...base, status: { conditions: [condition], inForce: versionToKeep(base) } } as unknown as TrafficPolicy
}

/** An API that stores what `store` makes of a policy. */
function reading(store: (policy: TrafficPolicy) => TrafficPolicy, policies: readonly TrafficPolicy[]) {
  const reads: string[] = []
  const read = (_kind: string, name: string): Promise<TrafficPolicy | undefined> => {
    reads.push(name)
    const found = policies.find(({ metadata }) => metadata.name === name)
    return Promise.resolve(found && store(found))
  }
  return { reads, deps: { api: { read: read as never }, logger: new CapturingLogger() } }
}

t.test('what is stored as it was written is not read for each write of the status', async (t) => {
  const versions = new WrittenVersions()
  const policy = written(true)
  const { reads, deps } = reading((one) => one, [policy])
  const round = async (shown: TrafficPolicy, now: TrafficPolicy): Promise<number> => {
    versions.look([shown], 0)
    versions.note([now], 0)
    await versions.readAgain(deps, signal)
    return reads.length
  }
  t.equal(await round({ ...policy, status: undefined } as never, policy), 1)
  for (let i = 0; i < 3; i += 1) t.equal(await round(policy, policy), 1, 'shares alone have changed')
  t.equal(await round({ ...policy, status: { conditions: [] } }, policy), 2, 'the API has dropped it meanwhile')
  const later = written(true, 2)
  t.equal(await round(policy, later), 3, 'another version')
})

t.test('a version that the API changes is tried again only while its policy is valid', async (t) => {
  const [bad, good] = [written(false, 1, 'bad'), written(true, 1, 'good')]
  const cut = (one: TrafficPolicy): TrafficPolicy =>
    ({ ...one, status: { ...one.status, inForce: { ...one.status?.inForce, spec: {} } } }) as TrafficPolicy
  const versions = new WrittenVersions()
  const { deps } = reading(cut, [bad, good])
  versions.note([bad, good], 0)
  await versions.readAgain(deps, signal)
  const changed = (): readonly string[] => [...versions.lost.changed.keys()].map((key) => key.split('/').at(-1) ?? '')
  t.same(changed(), ['bad', 'good'])
  versions.look([bad, good], WRITE_AGAIN_MS)
  t.same(changed(), ['bad'], 'that of the valid one')
  versions.look([bad], 2 * WRITE_AGAIN_MS)
  t.same(changed(), ['bad'])
  versions.look([written(true, 1, 'bad')], 3 * WRITE_AGAIN_MS)
  t.same(changed(), [], 'as soon as it is valid')
})
