/** `sealane topology`: shown, planned, set and set again, at a running broker and at its state without one. */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { planText } from '../../cli/commands/topology.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { LoopbackBroker } from './loopback-broker.ts'
import { runCli } from './run-cli.ts'
import { StorySite } from '../story/site.ts'

const HUB = 'mode: hub-and-spoke\nhubs: [milano]\n'
const GROUPS = 'mode: groups\ngroups:\n  - { name: all, clusters: [milano, paris, oslo] }\n'

function fileIn(t: Test): (text: string) => string {
  const folder = temporaryFolder(t)
  let count = 0
  return (text) => {
    const path = join(folder, `topology-${(count += 1)}.yaml`)
    writeFileSync(path, text)
    return path
  }
}

type Row = readonly [words: readonly string[], code: number, stdout: RegExp, stderr?: RegExp]

async function runAll(t: Test, state: string, rows: readonly Row[]): Promise<void> {
  for (const [words, code, stdout, stderr = /^$/] of rows) {
    const result = await runCli(['topology', ...words, '--state', state])
    t.equal(result.code, code, `${words.join(' ')}: ${result.stderr}`)
    t.match(result.stdout, stdout, words.join(' '))
    t.match(result.stderr, stderr, words.join(' '))
  }
}

t.test('each command, and each a second time', async (t) => {
  const broker = await LoopbackBroker.start(t)
  for (const [i, id] of ['milano', 'paris', 'oslo'].entries())
    await StorySite.join(t, id, broker, [`10.${50 + i}.0.0/16`])
  const file = fileIn(t)
  const [hub, groups] = [file(HUB), file(GROUPS)]
  await runAll(t, broker.state, [
    [['show'], 0, /^# it was never set: all clusters link\nmode: full\n$/],
    [
      ['plan', hub],
      0,
      /^mode full to hub-and-spoke: 2 of 3 pairs of clusters would link\nlinks lost: 1\n {2}oslo – paris\n$/,
    ],
    [['plan', hub, '-o', 'json'], 0, /"basedOn": 0,[^]*"lost": 1,[^]*"change": "lost"/],
    [['set', hub], 2, /^$/, /links lost: 1\n {2}oslo – paris\n[^]*expected --yes/],
    [['show'], 0, /mode: full/],
    [['set', hub, '--yes'], 0, /^mode full to hub-and-spoke: 1 link lost, 0 gained, 2 in all\n$/],
    [['set', hub, '--yes'], 0, /^the topology is that already: nothing was changed\n$/],
    [['set', hub], 0, /^the topology is that already: nothing was changed\n$/],
    [['show'], 0, /^# change 1, set at 20[^]*\nmode: hub-and-spoke\nhubs:\n {2}- milano\n$/],
    [['show', '-o', 'json'], 0, /"number": 1/],
    [['set', groups], 0, /^mode hub-and-spoke to groups: 0 links lost, 1 gained, 3 in all\n$/],
    [['plan', 'full'], 0, /^mode groups to full: 3 of 3 pairs of clusters would link\n$/],
    [['set', 'full'], 0, /^mode groups to full: 0 links lost, 0 gained, 3 in all\n$/],
    [['set', file('mode: groups\ngroup: []\n')], 1, /^$/, /group: unknown field/],
    [['set', file('mode: [\n')], 1, /^$/, /expected YAML or JSON/],
    [
      ['plan', file('mode: groups\ngroups: &all\n  - *all\n')],
      1,
      /^$/,
      /\.yaml: expected no alias\s+that stands for what it is part of\n/,
    ],
    [
      ['plan', file('mode: hub-and-spoke\nhubs: [tokyo]\n')],
      0,
      /without any link: milano, oslo, paris\nnamed, and no member yet: tokyo; reserve such an id: sealane token create --cluster-id\n$/,
    ],
    [['plan', '/dev/null'], 1, /^$/, /expected a file/],
    [['plan', join(broker.state, 'none.yaml')], 1, /^$/, /none\.yaml/],
    [['plan'], 2, /^$/, /file/],
  ])
  await broker.stop()
  await runAll(t, broker.state, [
    [['show'], 0, /^# change 3/],
    [['set', hub, '--yes'], 0, /1 link lost/],
    [['show'], 0, /^# change 4/],
  ])
  await broker.start()
  await runAll(t, broker.state, [[['show'], 0, /^# change 4[^]*hub-and-spoke/]])
})

t.test('a plan that somebody else has overtaken is refused', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const { withAdminClient } = await import('../../protocol/admin/admin-client.ts')
  const { adminSocket } = await import('../../protocol/admin/admin-socket.ts')
  const { signal } = new AbortController()
  const init = { socket: adminSocket(broker.state), clusterset: undefined, operator: {}, signal }
  await withAdminClient(init, async (admin) => {
    const hub = { mode: 'hub-and-spoke', hubs: ['a'] }
    t.same(await admin.setTopology({ topology: hub, basedOn: 0 }), { changed: true, number: 1 })
    t.same(await admin.setTopology({ topology: hub, basedOn: 0 }), { changed: false, number: 1 }, 'the same again')
    const failure = (topology: object): Promise<unknown> =>
      admin.setTopology({ topology, basedOn: 0 }).catch((error: unknown) => error)
    t.match(await failure({ mode: 'full' }), { reason: 'TopologyChanged', field: 'basedOn' })
    t.match(await failure({ mode: 'full', hubs: ['a'] }), { reason: 'InvalidValue', field: 'hubs' })
    t.match(await admin.topology(), { number: 1, topology: hub })
  })
})

t.test('the text of a plan names services and their importers, and is bounded', async (t) => {
  const ids = Array.from({ length: 30 }, (_, i) => `c${i}`)
  const text = planText({
    basedOn: 1,
    mode: { before: 'full', after: 'groups' },
    members: 40,
    links: { after: 5, lost: 30, gained: 1 },
    changes: [
      ...ids.map((id) => ({ clusters: ['a', id] as const, change: 'lost' as const })),
      { clusters: ['x', 'y'], change: 'gained' },
    ],
    services: [
      {
        exporter: 'a',
        namespace: 'shop',
        name: 'web',
        loses: ids.slice(0, 20),
        losesCount: 30,
        gains: [],
        gainsCount: 0,
      },
    ],
    servicesChanged: 1,
    alone: [],
    unknown: ['later'],
  })
  t.match(text, 'mode full to groups: 5 of 780 pairs of clusters would link\nlinks lost: 30\n  a – c0\n')
  t.match(text, '\n  and 10 more: -o json\nlinks gained: 1\n  x – y\n')
  t.match(text, 'named, and no member yet: later; reserve such an id: sealane token create --cluster-id\n')
  t.match(text, /shop\/web of a: c0, [^\n]*c19 and 10 more\n/)
})

t.test('the text of a plan has the links for which relays have no ports', async (t) => {
  const transit = { links: 105, moved: 0, withoutRelay: [], unreachable: [], unreachableCount: 0 }
  const rest = { basedOn: 1, changes: [], services: [], servicesChanged: 0, alone: [], unknown: [] }
  const crowded = [{ via: ['h1'], links: 105, room: 99, member: 'c0', linksOfMember: 14, roomOfMember: 49 }]
  const text = planText({
    ...{ ...rest, mode: { before: 'full', after: 'hub-and-spoke' }, members: 16 },
    ...{ links: { after: 120, lost: 0, gained: 0 }, transit: { ...transit, crowded } },
  })
  t.match(
    text,
    /some links stay down: 1\n {2}h1: 105 links between gateways, and room for 99; 14 links of c0, and room for 49 of one/,
  )
})

t.test('links through hubs: planned, set with what is missing said, and shown', async (t) => {
  const broker = await LoopbackBroker.start(t)
  for (const [i, id] of ['milano', 'paris', 'oslo'].entries())
    await StorySite.join(t, id, broker, [`10.${50 + i}.0.0/16`])
  const file = fileIn(t)
  const via = file('mode: hub-and-spoke\nhubs: [milano]\nvia: [milano]\n')
  const pairs = file(
    'mode: pairs\npairs: [{ between: { clusters: [paris] }, and: { clusters: [oslo] }, via: [tokyo, milano] }]\n',
  )
  const missing = /hubs of which no gateway relays: milano; sealane join --relay, or relay: true in site\.yaml\n/
  await runAll(t, broker.state, [
    [
      ['plan', via],
      0,
      new RegExp(
        `3 of 3 pairs of clusters would link\n1 link through hubs\n` +
          `links that move: 1, each is interrupted for a second or two\n {2}oslo – paris\n${missing.source}$`,
      ),
    ],
    [['set', via], 0, /0 links lost, 0 gained, 3 in all/, missing],
    [['show'], 0, /mode: hub-and-spoke\nhubs:\n {2}- milano\nvia:\n {2}- milano\n$/],
    [['plan', 'full'], 0, /links that move: 1[^]*oslo – paris: without hubs\n$/],
    [
      ['plan', pairs],
      0,
      /links that stay down, because no hub is a member and links with both: 1\n {2}oslo – paris\n[^]*no member yet: tokyo/,
    ],
    [['plan', file('mode: full\nvia: [milano]\n')], 1, /^$/, /via: expected none with mode full/],
  ])
})
