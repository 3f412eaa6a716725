/**
 * The recipes of examples/network-policies beside Sealane, under a real engine: default deny, and what opens it for
 * pods of other clusters by their own addresses and by global ones. Each has a call that may and one that may not.
 */
import type { Test } from 'tap'
import { inZone, same } from '../mcs/expect.ts'
import { type Site, callers, lookUp } from '../support/callers.ts'
import { type DualWorld, answerOf } from '../support/dual-world.ts'
import { applyExample } from '../support/example-objects.ts'
import type { KubeObject } from '../support/kube-request.ts'
import { seenBy } from '../support/dual-hello.ts'
import { installEngine } from './run-engine.ts'

interface ClusterRecord extends KubeObject {
  readonly spec: { readonly podCIDRs: readonly string[]; readonly globalCIDRs?: readonly string[] }
}

/**
 * c1 exports `web`, and c3 `third`. To each other c1 and c2 have global addresses, and c3 has its own to both.
 */
export async function networkPolicyRecipes(t: Test, world: DualWorld, c3: Site): Promise<void> {
  const { c1, c2, clusters } = world
  const [first, second] = clusters.clusters
  if (first === undefined || second === undefined) throw new Error('there are fewer than two clusters')
  const ranges = await rangesOf(c1)
  const apply = (site: Site, file: string, replace: Readonly<Record<string, string>> = {}): Promise<void> =>
    applyExample(site, { file: `network-policies/${file}.yaml`, namespace: 'shop', replace })
  await Promise.all([installEngine(first), installEngine(second)])
  await same(t, () => ask(c2, 'web'), 'c1 global', 'without a policy all is as before')

  await t.test('default deny shuts other clusters out, too', async (t) => {
    await apply(c1, 'default-deny')
    for (const site of [c2, c3]) await same(t, () => ask(site, 'web'), 'nobody', site.name)
  })

  await t.test('a cluster is let in by the range of its pods', async (t) => {
    await apply(c1, 'allow-from-cluster', { '10.52.0.0/16': ranges.c3 })
    await same(t, () => ask(c3, 'web'), answerOf(world, 'c1', c3, 4), 'c3 may')
    t.equal(await ask(c3, 'web', 'udp'), 'nobody', 'at that port alone')
    t.equal(await ask(c2, 'web'), 'nobody', 'c2 may not')
  })

  await t.test('and by its global range where it has one', async (t) => {
    await apply(c1, 'allow-from-translated-cluster', { '244.1.0.0/16': ranges.c2 })
    await same(t, () => ask(c2, 'web'), 'c1 global', 'c2 may')
    t.equal(await ask(c2, 'web', 'udp'), 'nobody', 'at that port alone')
  })

  await t.test('default deny keeps callers in, names too', async (t) => {
    await apply(c2, 'default-deny')
    await same(t, () => ask(c2, 'web'), 'nobody', 'web')
    t.match(await lookUp(c2, 'shop', inZone('web'), 'A'), 'no answer')
    await apply(c2, 'allow-dns')
    await same(t, async () => (await lookUp(c2, 'shop', inZone('web'), 'A')).split('.')[0], 'NOERROR 245', 'a name')
    t.equal(await ask(c2, 'web'), 'nobody', 'and no call')
  })

  await t.test('callers are let out to the pods of one cluster', async (t) => {
    await apply(c2, 'allow-to-cluster', { '244.1.0.0/16': ranges.c1 })
    await same(t, () => ask(c2, 'web'), 'c1 global', 'c1 may be called')
    t.equal(await ask(c2, 'third'), 'nobody', 'c3 may not')
    t.match(await callers(c3, { namespace: 'shop', host: inZone('third'), times: 1 }), /^c3 /, 'which is there')
  })
}

/** IPv4 ranges by which other clusters know the pods of each. */
async function rangesOf({ api }: Site): Promise<Readonly<Record<'c1' | 'c2' | 'c3', string>>> {
  const of = async (name: string): Promise<string> => {
    const { spec } = await api.get<ClusterRecord>(`/apis/sealane.io/v1alpha1/clusters/${name}`)
    const global = spec.globalCIDRs?.find((range) => range.startsWith('244.'))
    const range = global ?? spec.podCIDRs.find((one) => !one.includes(':'))
    if (range === undefined) throw new Error(`${name} has no range of IPv4`)
    return range
  }
  const [c1, c2, c3] = await Promise.all([of('c1'), of('c2'), of('c3')])
  return { c1, c2, c3 }
}

/** Who answers and from which address it was called, such as "c1 global"; "nobody" after two seconds. */
async function ask(site: Site, name: string, protocol: 'tcp' | 'udp' = 'tcp'): Promise<string> {
  const seen = await seenBy(site, { namespace: 'shop', host: inZone(name), protocol, times: 1 })
  return seen.replace(/ 244(\.\d+){3}$/, ' global')
}
