/**
 * Clusters of IPv4 and IPv6 of which one family overlaps: IPv4 is translated and IPv6 is not, or the later cluster's
 * IPv6 is not offered and its IPv4 works alone. Neither harms the other family.
 */
import t, { type Test } from 'tap'
import { inZone, same } from './mcs/expect.ts'
import { type Call, type Site, lookUp } from './support/callers.ts'
import { type Family, seenBy } from './support/dual-hello.ts'
import { type DualWorld, answerOf, importShape, offer, startDualWorld } from './support/dual-world.ts'
import { networkPolicyRecipes } from './network-policies/recipes.ts'
import { engineImage } from './network-policies/run-engine.ts'
import { kubeletMissing } from './support/test-kubelet-world.ts'
import { findImport } from './support/service-imports.ts'
import type { ClusterRow } from './support/two-clusters.ts'

t.setTimeout(600_000)

/**
 * The second cluster has the IPv4 addresses of the first; the third has the IPv6 addresses of the first cluster's pods.
 */
const ROWS: readonly ClusterRow[] = [
  { name: 'c1', podCIDR: '10.42.0.0/16,fd00:42::/48', serviceCIDR: '10.43.0.0/16,fd00:43::/112', nodes: ['c1n1'] },
  { name: 'c2', podCIDR: '10.42.0.0/16,fd00:52::/48', serviceCIDR: '10.43.0.0/16,fd00:53::/112', nodes: ['c2n1'] },
  { name: 'c3', podCIDR: '10.62.0.0/16,fd00:42::/48', serviceCIDR: '10.63.0.0/16,fd00:63::/112', nodes: ['c3n1'] },
]
const BOTH = { ipFamilyPolicy: 'PreferDualStack' }

t.test('one family overlaps', { skip: kubeletMissing() ?? false, timeout: 600_000 }, async (t) => {
  const world = await startDualWorld(t, { rows: ROWS, services: { web: BOTH }, images: await engineImage() })
  const [, , c3] = world.sites
  if (c3 === undefined) throw new Error('there is no third cluster')
  await t.test('IPv4 is translated, IPv6 is not', (t) => translated(t, world))
  await t.test('IPv6 of the later cluster stays at home', (t) => atHome(t, world, c3))
  await t.test('what is of IPv6 alone is not there, and says so', (t) => sixAlone(t, world, c3))
  await t.test('what the later cluster exports is reached by IPv4', (t) => fromThird(t, world, c3))
  await t.test('recipes of NetworkPolicies', (t) => networkPolicyRecipes(t, world, c3))
  const { lanes, bare, bareKinds } = world.wire()
  t.ok(lanes > 100, `all that was called went through lanes: ${lanes} packets`)
  t.same({ bare, bareKinds }, { bare: 0, bareKinds: [] }, 'and no packet with an address of a pod')
})

/**
 * The pod that answers a call of the name, and the caller's address that it sees; a global address is shown as
 * "global".
 */
async function ask(site: Site, name: string, family: Family): Promise<string> {
  const call: Call = { namespace: 'shop', host: inZone(name), family, times: 5 }
  return (await seenBy(site, call)).replace(/ 244(\.\d+){3}$/, ' global')
}

async function translated(t: Test, world: DualWorld): Promise<void> {
  const { c1, c2 } = world
  for (const site of [c1, c2]) {
    await same(t, () => importShape(site, 'web'), 'ClusterSetIP IPv4,IPv6 ip4,ip6 from c1', `both in ${site.name}`)
    await same(t, () => ask(site, 'web', 6), answerOf(world, 'c1', site, 6), `${site.name} has its own IPv6 address`)
  }
  await same(t, () => ask(c1, 'web', 4), answerOf(world, 'c1', c1, 4), 'at home nothing is translated')
  await same(t, () => ask(c2, 'web', 4), 'c1 global', 'and a global IPv4 address')
}

async function atHome(t: Test, world: DualWorld, c3: Site): Promise<void> {
  await same(t, () => importShape(c3, 'web'), 'ClusterSetIP IPv4 ip4 from c1', 'IPv4 alone in c3')
  await same(t, () => lookUp(c3, 'shop', inZone('web'), 'AAAA'), 'NOERROR', 'no IPv6 address in its DNS')
  await same(t, () => ask(c3, 'web', 4), answerOf(world, 'c1', c3, 4), 'IPv4 is answered, and not translated')
  t.equal(await ask(c3, 'web', 6), 'nobody', 'IPv6 is not')
  const host = world.pods.get('c3')?.hello[6] ?? ''
  t.equal(host, world.pods.get('c1')?.hello[6], 'c1 has a pod with the very address of one in c3')
  const own: Call = { namespace: 'shop', host, family: 6, times: 5 }
  for (const site of [world.c1, c3]) {
    t.equal(await seenBy(site, own), answerOf(world, site.name, site, 6), `${site.name} reaches its own pod by IPv6`)
  }
  t.equal(await seenBy(world.c2, own), answerOf(world, 'c1', world.c2, 6), 'to c2 it is that of c1')
}

async function sixAlone(t: Test, world: DualWorld, c3: Site): Promise<void> {
  const { c1, c2 } = world
  await offer(c1, 'six', { ipFamilyPolicy: 'SingleStack', ipFamilies: ['IPv6'] })
  await same(t, () => importShape(c2, 'six'), 'ClusterSetIP IPv6 ip6 from c1', 'it is there in c2')
  await same(t, () => ask(c2, 'six', 6), answerOf(world, 'c1', c2, 6), 'and answers')
  const ready = async (): Promise<string> => {
    const found = await findImport(c3, 'shop', 'six')
    const condition = found?.status?.conditions?.find(({ type }) => type === 'Ready')
    return `${condition?.status ?? ''} ${condition?.reason ?? ''}`
  }
  await same(t, ready, 'False IPFamilyNotSupported', 'c3 cannot use it')
}

async function fromThird(t: Test, world: DualWorld, c3: Site): Promise<void> {
  await offer(c3, 'third', BOTH)
  const rows = [
    [world.c1, 'c3 global'],
    [c3, answerOf(world, 'c3', c3, 4)],
  ] as const
  for (const [site, wanted] of rows) {
    await same(t, () => importShape(site, 'third'), 'ClusterSetIP IPv4 ip4 from c3', `IPv4 alone in ${site.name}`)
    await same(t, () => ask(site, 'third', 4), wanted, `${site.name} is answered`)
  }
}
