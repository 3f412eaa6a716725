/**
 * IPv6 beside IPv4 over two joined clusters whose pods, Services and nodes have addresses of both: what a user exports
 * by one family or both, and what the other cluster gets. Some stories continue where an earlier one ended.
 */
import { execFileSync } from 'node:child_process'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { inZone, same } from './mcs/expect.ts'
import { type Call, inRequestPod, lookUp } from './support/callers.ts'
import { BIG_ANSWER, type Family, seenBy } from './support/dual-hello.ts'
import {
  type DualWorld,
  SERVICES,
  answerOf,
  importShape,
  offer,
  sliceText,
  startDualWorld,
} from './support/dual-world.ts'
import { dumpNode, sealaneFiles } from './support/node-dump.ts'
import type { KubeNode } from './support/node.ts'
import { kubeletMissing } from './support/test-kubelet-world.ts'
import { refusedByApiServer } from './support/pod-logs.ts'
import { sealane } from './support/sealane-command.ts'
import { awaitImport, exportText, findImport, unexportService } from './support/service-imports.ts'
import { DUAL } from './support/two-clusters.ts'

t.setTimeout(600_000)

const SYSTEM = 'sealane-system'
const NONE = { 4: '', 6: '' }

/** The pods of the second cluster are on a node that is not a gateway. */
const ROWS = DUAL.map((row) => (row.name === 'c2' ? { ...row, nodes: ['c2n1', 'c2n2'] } : row))

t.test('IPv6 beside IPv4', { skip: kubeletMissing() ?? false, timeout: 600_000 }, async (t) => {
  const world = await startDualWorld(t, { rows: ROWS, services: SERVICES })
  for (const [name, story] of Object.entries(STORIES)) await t.test(name, (t) => story(t, world))
})

const STORIES: Readonly<Record<string, (t: Test, world: DualWorld) => Promise<void>>> = {
  'pods reach pods of the other cluster, and are seen with their own addresses': podStory,
  'each export becomes an import of its families, with an address of each': importStory,
  'the other cluster has slices of both families': sliceStory,
  'names have A and AAAA records': nameStory,
  'who calls by either family is answered, and seen with its own address': callStory,
  'answers of many packets arrive, and nodes themselves are answered': farStory,
  'between the clusters there are lanes only': wireStory,
  'IPv4 only beside both families is a conflict, told to both, and harms nobody': conflictStory,
  'unexport takes both families away': unexportStory,
  'leaving takes everything out of the kernels again': leaveStory,
}

async function podStory(t: Test, world: DualWorld): Promise<void> {
  const { c1, c2, pods } = world
  // Pods of c1 are behind exported services. A cluster lets in nothing else.
  await offer(c2, 'back', { ipFamilyPolicy: 'PreferDualStack', clusterIP: 'None' })
  for (const [here, there] of [
    [c1, c2],
    [c2, c1],
  ] as const) {
    for (const family of [4, 6] as const) {
      const host = pods.get(there.name)?.hello[family] ?? ''
      for (const protocol of ['tcp', 'udp'] as const) {
        const ask = (): Promise<string> => seenBy(here, { namespace: 'shop', host, family, protocol, times: 2 })
        await same(t, ask, answerOf(world, there.name, here, family), `${here.name} calls ${host} by ${protocol}`)
      }
    }
  }
  await unexportService(c2, 'shop', 'back')
}

async function importStory(t: Test, { c1, c2, sites }: DualWorld): Promise<void> {
  const wanted = {
    web: 'ClusterSetIP IPv4,IPv6 ip4,ip6 from c1',
    bare: 'Headless IPv4,IPv6  from c1',
    six: 'ClusterSetIP IPv6 ip6 from c1',
  }
  for (const [name, shape] of Object.entries(wanted)) {
    await same(t, () => exportText(c1, 'shop', name), 'Valid Ready', `${name}: the export is without fault`)
    for (const site of sites) await same(t, () => importShape(site, name), shape, `${name} in ${site.name}`)
    const [first, second] = await Promise.all(sites.map((site) => awaitImport(site, 'shop', name)))
    t.strictSame(first?.spec.ips, second?.spec.ips, `${name}: the same addresses in both clusters`)
  }
  const addresses = await Promise.all(['web', 'six'].map((name) => awaitImport(c2, 'shop', name)))
  t.equal(new Set(addresses.flatMap(({ spec }) => spec.ips)).size, 3, 'no address is given twice')
}

async function sliceStory(t: Test, { c2, pods }: DualWorld): Promise<void> {
  const { 4: v4, 6: v6 } = pods.get('c1')?.hello ?? NONE
  const wanted = { web: `IPv4 ${v4}, IPv6 ${v6}`, bare: `IPv4 ${v4}, IPv6 ${v6}`, six: `IPv6 ${v6}` }
  for (const [name, text] of Object.entries(wanted)) {
    await same(t, () => sliceText(c2, name), text, `${name} in c2`)
  }
}

async function nameStory(t: Test, { sites, pods }: DualWorld): Promise<void> {
  const { 4: v4, 6: v6 } = pods.get('c1')?.hello ?? NONE
  for (const site of sites) {
    const ips = async (name: string): Promise<readonly string[]> =>
      (await awaitImport(site, 'shop', name)).spec.ips ?? []
    const [web4 = '', web6 = ''] = await ips('web')
    const [six6 = ''] = await ips('six')
    const rows: readonly (readonly [name: string, type: string, wanted: string])[] = [
      [inZone('web'), 'A', `NOERROR ${web4}`],
      [inZone('web'), 'AAAA', `NOERROR ${web6}`],
      [inZone('bare'), 'A', `NOERROR ${v4}`],
      [inZone('bare'), 'AAAA', `NOERROR ${v6}`],
      [`${v6.replaceAll(':', '-')}.c1.${inZone('bare')}`, 'AAAA', `NOERROR ${v6}`],
      [inZone('six'), 'AAAA', `NOERROR ${six6}`],
      [inZone('six'), 'A', 'NOERROR'],
    ]
    for (const [name, type, wanted] of rows) {
      await same(t, () => lookUp(site, 'shop', name, type), wanted, `${name} ${type} in ${site.name}`)
    }
  }
}

/** Each row has the service, and the families by which it is reached. */
const REACH: readonly (readonly [name: string, families: readonly Family[]])[] = [
  ['web', [4, 6]],
  ['bare', [4, 6]],
  ['six', [6]],
]

async function callStory(t: Test, world: DualWorld): Promise<void> {
  for (const site of world.sites) {
    for (const [name, families] of REACH) {
      for (const family of [4, 6] as const) {
        const wanted = families.includes(family) ? answerOf(world, 'c1', site, family) : 'nobody'
        for (const protocol of ['tcp', 'udp'] as const) {
          const call: Call = { namespace: 'shop', host: inZone(name), family, protocol, times: 5 }
          await same(t, () => seenBy(site, call), wanted, `${name} by IPv${family} and ${protocol} from ${site.name}`)
        }
      }
    }
  }
}

async function farStory(t: Test, { c2, clusters }: DualWorld): Promise<void> {
  const { spec } = await awaitImport(c2, 'shop', 'web')
  const node = clusters.clusters[1]?.nodes.at(-1)
  for (const [i, family] of ([4, 6] as const).entries()) {
    const far = `nc -${family} -w 5 ${inZone('web')} 43 < /dev/null | wc -c`
    await same(t, () => inRequestPod(c2, 'shop', far), `${BIG_ANSWER}\n`, `all of a long answer by IPv${family}`)
    const ip = spec.ips?.[i] ?? ''
    await same(t, () => Promise.resolve(fromNode(node, family, ip)), 'c1', `the node itself calls ${ip}`)
  }
}

/** The pod that answers a call that a node itself makes. */
function fromNode(node: KubeNode | undefined, family: Family, ip: string): string {
  const argv = ['netns', 'exec', node?.netns ?? '', 'nc', `-${family}`, '-w', '2', ip, '42']
  try {
    const said = execFileSync('ip', argv, { input: '', encoding: 'utf8', stdio: ['pipe', 'pipe', 'ignore'] })
    return said.split(' ')[0] ?? ''
  } catch {
    return 'nobody'
  }
}

function wireStory(t: Test, { wire }: DualWorld): Promise<void> {
  const { lanes, bare, bareKinds } = wire()
  t.ok(lanes > 1000, `all that was called went through lanes: ${lanes} packets`)
  t.same({ bare, bareKinds }, { bare: 0, bareKinds: [] }, 'and no packet with an address of a pod')
  return Promise.resolve()
}

async function conflictStory(t: Test, world: DualWorld): Promise<void> {
  const { c1, c2, sites } = world
  const specs = [{ ipFamilyPolicy: 'PreferDualStack' }, { ipFamilyPolicy: 'SingleStack', ipFamilies: ['IPv4'] }]
  for (const [i, site] of sites.entries()) {
    await offer(site, 'mixed', specs[i] ?? {})
    // The next export must be younger than this one.
    const exporters = async (): Promise<number> =>
      (await findImport(site, 'shop', 'mixed'))?.status?.clusters?.length ?? 0
    await same(t, exporters, i + 1, `${i + 1} of 2 export it`)
  }
  for (const site of sites) {
    const wanted = 'Valid Ready Conflict=IPFamilyConflict'
    await same(t, () => exportText(site, 'shop', 'mixed'), wanted, `${site.name} is told`)
    const shape = 'ClusterSetIP IPv4,IPv6 ip4,ip6 from c1,c2'
    await same(t, () => importShape(site, 'mixed'), shape, `the oldest export decides in ${site.name}`)
    const call = { namespace: 'shop', host: inZone('mixed'), times: 20 }
    const four = ['c1', 'c2'].map((name) => answerOf(world, name, site, 4)).join(' ')
    await same(t, () => seenBy(site, { ...call, family: 4 }), four, `both answer IPv4 in ${site.name}`)
    const six = answerOf(world, 'c1', site, 6)
    await same(t, () => seenBy(site, { ...call, family: 6 }), six, `c1 alone answers IPv6 in ${site.name}`)
  }
  await unexportService(c2, 'shop', 'mixed')
  await same(t, () => exportText(c1, 'shop', 'mixed'), 'Valid Ready', 'no conflict without the younger one')
}

async function unexportStory(t: Test, { c1, sites }: DualWorld): Promise<void> {
  await unexportService(c1, 'shop', 'web')
  for (const site of sites) {
    await same(t, () => importShape(site, 'web'), 'none', `no import in ${site.name}`)
    await same(t, () => sliceText(site, 'web'), '', `no slice in ${site.name}`)
    for (const type of ['A', 'AAAA']) {
      await same(t, () => lookUp(site, 'shop', inZone('web'), type), 'NXDOMAIN', `no ${type} in ${site.name}`)
    }
    for (const family of [4, 6] as const) {
      const call: Call = { namespace: 'shop', host: inZone('web'), family, times: 1 }
      t.equal(await seenBy(site, call), 'nobody', `no answer by IPv${family} in ${site.name}`)
    }
  }
}

async function leaveStory(t: Test, { sites, clusters, kernels, directory }: DualWorld): Promise<void> {
  for (const site of sites) {
    t.strictSame(await refusedByApiServer(site.api, SYSTEM), [], `${site.name}: no part was refused anything`)
  }
  for (const { row, plane, nodes } of [...clusters.clusters].reverse()) {
    await sealane(['leave', '--yes', '--kubeconfig', plane.kubeconfig])
    for (const node of nodes) {
      t.equal(dumpNode(node), kernels.get(node.name), `${node.name}: its kernel is as before`)
      t.strictSame(sealaneFiles(join(directory, row.name), node.name), [], `${node.name}: no file is left`)
    }
  }
}
