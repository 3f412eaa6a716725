/** From the discovery and the flags to the plan of a join. */
import { refOf, titleOf } from '../../../../kubeapi/kube/kinds.ts'
import fc from 'fast-check'
import { Command } from 'commander'
import t from 'tap'
import { type JoinKubeOptions, addJoinKubeOptions } from '../../../../cli/cluster/join-options.ts'
import { callableGateways } from '../../../../cli/cluster/plan-gateways.ts'
import { type JoinOptions, idFromName, openQuestions, planJoin } from '../../../../cli/cluster/plan-join.ts'
import { type Discovery, discover } from '../../../../cli/discovery/discover.ts'
import { parseSiteFile } from '../../../../kubeapi/files/site-file.ts'
import { DEFAULT_VALUES } from '../../../../install/values/install-values.ts'
import { likelyRungText } from '../../../../model/lanes/likely-rung.ts'
import { isDnsLabel, parseClusterId } from '../../../../model/ids.ts'
import { fixture } from '../../discovery/support/fixtures.ts'

const NOTHING: JoinOptions = { labels: {}, gateways: [] }

t.test('an id made of a context’s name', async (t) => {
  const rows: [string | undefined, string | undefined][] = [
    [undefined, undefined],
    ['', undefined],
    ['c1', 'c1'],
    ['Milano', 'milano'],
    ['kind-east', 'kind-east'],
    ['arn:aws:eks:eu-south-1:123456789012:cluster/prod', 'prod'],
    ['gke_my-project_europe-west1-b_blue', 'blue'],
    ['admin@paris', 'paris'],
    ['user/api-example-org:6443', '6443'],
    ['a.b c', 'a-b-c'],
    ['---', undefined],
    ['-x-', 'x'],
    ['x'.repeat(80), 'x'.repeat(63)],
    [`${'x'.repeat(62)}-yy`, 'x'.repeat(62)],
    ['日本', undefined],
  ]
  for (const [name, want] of rows) t.equal(idFromName(name), want, JSON.stringify(name))
  fc.assert(
    fc.property(fc.string({ unit: 'binary', maxLength: 100 }), (name) => {
      const id = idFromName(name)
      return id === undefined || (isDnsLabel(id) && idFromName(id) === id && parseClusterId(id) === id)
    }),
  )
  fc.assert(
    fc.property(fc.stringMatching(/^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/), (id) => idFromName(id) === id),
    { examples: [['a']] },
  )
})

function plan(discovery: Discovery, given: Partial<JoinOptions> = {}) {
  return planJoin(discovery, { ...NOTHING, ...given, clusterId: parseClusterId('c1') }, DEFAULT_VALUES)
}

t.test('what flags say counts for more than what was found', async (t) => {
  const found = discover(fixture('kubeadm-flannel'))
  const own = plan(found)
  t.strictSame([own.podCIDRs, own.serviceCIDRs], [found.podCIDRs?.value, found.serviceCIDRs?.value])
  const said = plan(found, { podCIDRs: ['10.9.0.0/16'], labels: { region: 'eu' } })
  t.strictSame(said.podCIDRs, ['10.9.0.0/16'])
  const flags = addJoinKubeOptions(new Command()).parse(
    ['--pod-cidr', '10.9.0.0/16', '--pod-cidr', 'FD00:9:0::/48', '--service-cidr', 'fd00:8::/108'],
    { from: 'user' },
  )
  const { podCidr = [], serviceCidr = [] } = flags.opts<JoinKubeOptions>()
  const both = plan(found, { podCIDRs: podCidr, serviceCIDRs: serviceCidr })
  const stated = parseSiteFile('site.yaml', both.site)
  t.strictSame([stated.podCIDRs, stated.serviceCIDRs], [['10.9.0.0/16', 'fd00:9::/48'], ['fd00:8::/108']])
  const config = said.objects.find(({ kind, metadata }) => kind === 'ConfigMap' && metadata.name === 'sealane-site')
  const { 'site.yaml': text = '' } = config?.['data'] as Record<string, string>
  const site = parseSiteFile('site.yaml', text)
  t.equal(site.name, 'c1', 'the site file can be read back')
  t.strictSame(site.podCIDRs, ['10.9.0.0/16'])
  t.strictSame(site.labels, { region: 'eu' })
  t.strictSame(site.dns.listen.length, 1)
  t.ok(site.kubernetes)
})

t.test(
  'namespaces that are allowed: beside those of an earlier join, and to the byte where nothing is new',
  async (t) => {
    const found = discover(fixture('kubeadm-flannel'))
    t.notMatch(plan(found).site, /allowedNamespaces/, 'not named where none is')
    const allowed = (one: { readonly site: string }) => parseSiteFile('site.yaml', one.site).allowedNamespaces
    const first = plan(found, { allowedNamespaces: ['default'] })
    t.strictSame(allowed(first), ['default'])
    const config = first.objects.find(({ kind, metadata }) => kind === 'ConfigMap' && metadata.name === 'sealane-site')
    const live = new Map(config === undefined ? [] : [[titleOf(refOf(config)), config]])
    const again = (given: Partial<JoinOptions>) =>
      planJoin(found, { ...NOTHING, ...given, clusterId: parseClusterId('c1') }, DEFAULT_VALUES, { live, asked: {} })
    t.equal(again({}).site, first.site)
    t.equal(again({ allowedNamespaces: ['default'] }).site, first.site)
    t.strictSame(allowed(again({ allowedNamespaces: ['kube-tools'] })), ['default', 'kube-tools'])
  },
)

t.test('gateways: those that are asked for, else those that are labelled, else the best two', async (t) => {
  const found = discover(fixture('kubeadm-flannel'))
  const [best, second] = found.gateways.candidates
  if (best === undefined || second === undefined) throw new Error('the fixture has two candidates')
  t.strictSame(
    plan(found).gateways.map(({ node }) => node),
    [best.node, second.node],
  )
  t.strictSame(
    plan(found).nodes.map(({ node, labels }) => [node, labels]),
    [
      [best.node, { 'sealane.io/gateway': 'true' }],
      [second.node, { 'sealane.io/gateway': 'true' }],
    ],
    'both are active',
  )
  const labelled: Discovery = {
    ...found,
    gateways: { ...found.gateways, candidates: [{ ...best }, { ...second, lane: 3 }] },
  }
  t.strictSame(
    plan(labelled).gateways.map(({ node }) => node),
    [second.node],
  )
  t.strictSame(plan(labelled).nodes, [], 'nothing to write: it is labelled already')
  const asked = plan(labelled, { gateways: [{ node: second.node, publicAddress: '192.0.2.9' }, { node: best.node }] })
  t.strictSame(asked.nodes, [
    { node: second.node, labels: {}, annotations: { 'sealane.io/public-address': '192.0.2.9' } },
    { node: best.node, labels: { 'sealane.io/gateway': 'true' }, annotations: {} },
  ])
  const named = plan(labelled, {
    gateways: [{ node: second.node, publicAddress: 'gw.example.org', publicPort: 51820 }],
  })
  t.strictSame(named.nodes, [
    {
      node: second.node,
      labels: {},
      annotations: { 'sealane.io/public-address': 'gw.example.org', 'sealane.io/public-port': '51820' },
    },
  ])
})

t.test('a spot machine that no join chose is not replaced: the join says how to hand it over', async (t) => {
  const spot = { ...BARE, transient: 'label karpenter.sh/capacity-type=spot', node: 'g1', lane: 'any' as const }
  const notes = (change: object, gateways: { node: string }[] = []): string =>
    plan({ ...FLANNEL, gateways: { candidates: [{ ...spot, isChosen: false, ...change }], unfit: [] } }, { gateways })
      .notes.filter((note) => note.includes('not replaced'))
      .join()
  t.equal(
    notes({}),
    'gateway g1 may be taken away at short notice (label karpenter.sh/capacity-type=spot), and is not replaced then, ' +
      'because a user or an earlier release labelled it; to let the agent replace it: ' +
      'kubectl annotate node g1 sealane.io/gateway-chosen-by=join',
  )
  t.equal(notes({ isChosen: true }), '')
  t.equal(notes({ transient: undefined }), '')
  t.equal(notes({ lane: 3 }), '', 'its number is the choice of a user')
  t.equal(notes({}, [{ node: 'g1' }]), '', 'this user names it')
})

t.test('the port of a public address goes with it', async (t) => {
  const old = { publicAddress: '192.0.2.1', statesPort: true }
  const fit = {
    ...FLANNEL,
    gateways: { candidates: [{ ...BARE, ...old, annotated: true, node: 'g1', lane: 0 }], unfit: [] },
  }
  const away = { node: 'g1', lane: 0, why: 'cordoned', isAway: true, ...old }
  const cordoned = { ...FLANNEL, gateways: { candidates: [], unfit: [away] } }
  const rows: [say: string, publicAddress: string | undefined, publicPort: number | undefined, port: unknown][] = [
    ['another address without a port', '192.0.2.9', undefined, null],
    ['another address with a port', '192.0.2.9', 7000, '7000'],
    ['the same address', '192.0.2.1', undefined, undefined],
    ['no address', undefined, undefined, undefined],
  ]
  for (const [say, publicAddress, publicPort, port] of rows) {
    const gateway = { node: 'g1', ...(publicAddress && { publicAddress }), ...(publicPort && { publicPort }) }
    for (const found of [fit, cordoned]) {
      const annotations = plan(found, { gateways: [gateway] }).nodes[0]?.annotations ?? {}
      t.equal(annotations['sealane.io/public-port'], port, say)
    }
  }
})

t.test('the likely reach, by all that is known of the nodes', async (t) => {
  const node = (addresses: readonly string[], more: object = {}) => ({
    ...BARE,
    node: 'g1',
    lane: undefined,
    addresses,
    ...more,
  })
  const called = { publicAddress: '198.51.100.9' }
  const away = { node: 'g1', lane: 'any' as const, why: 'cordoned', isAway: true }
  const rows: [say: string, gateways: Discovery['gateways'], given: object, want: RegExp][] = [
    ['private addresses alone', { candidates: [node(['10.0.0.5'])], unfit: [] }, {}, /^only private addresses \(10/],
    ['a public one', { candidates: [node(['198.51.100.7'])], unfit: [] }, {}, /g1 has the address 198\.51\.100\.7/],
    [
      'annotated',
      { candidates: [node([], { ...called, annotated: true })], unfit: [] },
      {},
      /call g1 at 198\.51\.100\.9/,
    ],
    [
      'an ExternalIP',
      { candidates: [node(['198.51.100.9'], called)], unfit: [] },
      {},
      /has the address 198\.51\.100\.9/,
    ],
    ['a user states another', { candidates: [node([])], unfit: [] }, { publicAddress: 'gw.example' }, /at gw\.example/],
    ['cordoned', { candidates: [], unfit: [{ ...away, ...called }] }, {}, /call g1 at 198\.51\.100\.9/],
    ['not known', { candidates: [], unfit: [] }, {}, /^no public address is stated/],
  ]
  for (const [say, gateways, given, want] of rows) {
    const planned = callableGateways({ ...FLANNEL, gateways }, [{ node: 'g1', ...given }])
    t.match(likelyRungText(planned), want, say)
  }
})

t.test('gateways relay if the join says so, and an offer stays', async (t) => {
  const found = withNodes(w1, w2)
  const offers = (relay: boolean) =>
    plan(found, relay ? { relay } : {}).nodes.map(({ node, annotations }) => [node, annotations['sealane.io/relay']])
  t.strictSame(offers(true), [
    ['w1', 'true'],
    ['w2', 'true'],
  ])
  t.strictSame(offers(false), [
    ['w1', undefined],
    ['w2', undefined],
  ])
})

interface Seen {
  readonly node: string
  readonly lane?: number | 'any'
  /** The reason why the node cannot be a gateway at the moment. */
  readonly why?: string
}

const FLANNEL = discover(fixture('kubeadm-flannel'))
const BARE = { publicAddress: undefined, annotated: false, zone: undefined, transient: undefined, reasons: [] }

/** Returns a cluster with these nodes, the best gateway first. */
function withNodes(...seen: readonly Seen[]): Discovery {
  const fit = seen.filter(({ why }) => why === undefined)
  const candidates = fit.map(({ node, lane }) => ({ ...BARE, node, lane }))
  const unfit = seen.flatMap(({ node, lane, why }) =>
    why === undefined ? [] : [{ node, lane, why, isAway: why !== 'no IPv4 InternalIP' }],
  )
  return { ...FLANNEL, gateways: { candidates, unfit } }
}

const w1: Seen = { node: 'w1' }
const w2: Seen = { node: 'w2' }
const cordoned = (node: string, lane?: number): Seen => ({
  node,
  why: 'cordoned',
  ...(lane === undefined ? {} : { lane }),
})
const six = (lane?: number): Seen => ({ ...cordoned('six', lane), why: 'no IPv4 InternalIP' })
const LONG = `node-${'a'.repeat(120)}.example.org`
const only = (node: string, other: string): string =>
  `only ${node} is a gateway: the cluster is cut off when it fails; to add another one: kubectl label node ${other} sealane.io/gateway=true`
const SHARED =
  'all gateways have lane 3: one is active, and the others are on standby; sealane join --gateways 2 makes them active at once'

t.test('a join during maintenance: gateways stay', async (t) => {
  const away: Seen = { node: 'g2', lane: 3, why: 'not Ready' }
  const rows: [say: string, seen: Seen[], gateways: string, labelled: string][] = [
    ['nobody is labelled', [w1, w2, { node: 'w3' }], 'w1 w2', 'w1=true w2=true'],
    ['the bare one is cordoned', [w1, w2, cordoned('w0')], 'w1 w2', 'w1=true w2=true'],
    ['the labelled one is cordoned', [w1, w2, cordoned('g1', 0)], 'g1', ''],
    ['the labelled one is away', [w1, w2, away], 'g2', ''],
    ['all of three are', [w1, cordoned('g1', 0), away, cordoned('g3', 0)], 'g1 g2 g3', ''],
    ['one of two serves', [{ node: 'g0', lane: 0 }, w1, cordoned('g1', 0)], 'g0', ''],
    ['the labelled one has no IPv4', [w1, w2, six(0)], 'w1 w2', 'w1=true w2=true'],
    ['a bare one has no IPv4', [w1, six(), w2], 'w1 w2', 'w1=true w2=true'],
    ['one serves, one has no IPv4', [{ node: 'g0', lane: 0 }, w1, six(1)], 'g0', ''],
  ]
  for (const [say, seen, gateways, labelled] of rows) {
    const made = plan(withNodes(...seen))
    t.equal(made.gateways.map(({ node }) => node).join(' '), gateways, say)
    t.equal(made.nodes.map(({ node, labels }) => `${node}=${labels['sealane.io/gateway']}`).join(' '), labelled, say)
  }
})

t.test('nodes that are asked for are gateways, each with the number that it has or takes', async (t) => {
  const g1: Seen = { node: 'g1', lane: 0 }
  const rows: [say: string, seen: Seen[], asked: string, labelled: string][] = [
    ['one', [w1, w2], 'w2', 'w2=true'],
    ['three', [w1, w2, { node: 'w3' }], 'w3 w1 w2', 'w3=true w1=true w2=true'],
    ['beside one that serves', [g1, w1, w2], 'w1 w2', 'w1=true w2=true'],
    ['again', [g1, w1], 'g1 w1', 'w1=true'],
    ['one with another lane keeps it', [{ node: 'g3', lane: 3 }, w1], 'w1 g3', 'w1=true'],
    ['also while it is cordoned', [w1, cordoned('g3', 3)], 'g3 w1', 'w1=true'],
    ['one that nobody knows', [w1], 'w9', 'w9=true'],
  ]
  for (const [say, seen, asked, labelled] of rows) {
    const { nodes } = plan(withNodes(...seen), { gateways: asked.split(' ').map((node) => ({ node })) })
    t.equal(nodes.map(({ node, labels }) => `${node}=${labels['sealane.io/gateway']}`).join(' '), labelled, say)
  }
})

t.test(
  'a gateway that is the only one is told, where another node could be one, and one that only stands by',
  async (t) => {
    const g1: Seen = { node: 'g1', lane: 3 }
    const rows: [say: string, seen: Seen[], asked: string[], notes: string[]][] = [
      ['two are chosen', [w1, w2], [], []],
      ['there is one node', [w1], [], []],
      ['one is labelled', [g1, w1, w2], [], [only('g1', 'w1')]],
      ['names are long', [{ node: LONG, lane: 0 }, { node: `x${LONG}` }], [], [only(LONG, `x${LONG}`)]],
      ['a name that steers a terminal', [g1, { node: 'w\u001b[2J' }], [], [only('g1', 'w?[2J')]],
      ['it is cordoned', [w1, w2, cordoned('g1', 0)], [], [only('g1', 'w1')]],
      ['no other one is fit', [g1, cordoned('w1')], [], []],
      ['two are labelled', [g1, { node: 'g2', lane: 4 }, w1], [], []],
      ['two are labelled with one number', [g1, { node: 'g2', lane: 3 }, w1], [], [SHARED]],
      ['the same, one is cordoned', [g1, cordoned('g2', 3), w1], [], [SHARED]],
      ['two leave it open', [{ node: 'g1', lane: 'any' }, { node: 'g2', lane: 'any' }, w1], [], []],
      ['one is asked for', [w1, w2], ['w2'], [only('w2', 'w1')]],
      ['twice the same', [w1, w2], ['w1', 'w1'], [only('w1', 'w2')]],
      ['one is asked for beside one that is labelled', [g1, w1, w2], ['w1'], []],
      ['two are asked for', [w1, w2], ['w1', 'w2'], []],
      [
        'a label on a node without IPv4',
        [w1, w2, six(0)],
        [],
        ['node six has the label sealane.io/gateway but cannot serve a lane: no IPv4 InternalIP'],
      ],
    ]
    for (const [say, seen, asked, notes] of rows) {
      t.strictSame(plan(withNodes(...seen), { gateways: asked.map((node) => ({ node })) }).notes, notes, say)
    }
  },
)

t.test('a node that can be no gateway is not taken, also by name', async (t) => {
  t.throws(() => plan(withNodes(w1, six()), { gateways: [{ node: 'w1' }, { node: 'six' }] }), {
    message: '--gateway six: this node cannot be a gateway: no IPv4 InternalIP',
    reason: 'GatewayWithoutIPv4',
  })
})

t.test('how many gateways are active at once', async (t) => {
  const w3: Seen = { node: 'w3' }
  const any = (node: string): Seen => ({ node, lane: 'any' })
  const zero = (node: string): Seen => ({ node, lane: 0 })
  const short = (asked: number, has: number, why: string): string =>
    `${asked} gateways should be active, but there are only ${has}: ${why}`
  const label = (node: string): string => `kubectl label node ${node} sealane.io/gateway=true`
  const rows: [
    say: string,
    seen: Seen[],
    given: Partial<JoinOptions>,
    count: number,
    labelled: string,
    note?: string,
  ][] = [
    ['nobody says', [w1, w2, w3], {}, 2, 'w1 w2'],
    ['one', [w1, w2, w3], { activeGateways: 1 }, 1, 'w1', only('w1', 'w2')],
    ['three', [w1, w2, w3], { activeGateways: 3 }, 3, 'w1 w2 w3'],
    ['more than there are', [w1, w2], { activeGateways: 4 }, 4, 'w1 w2', short(4, 2, 'no other node can be a gateway')],
    ['beside one that is labelled', [any('g1'), w1, w2], { activeGateways: 3 }, 3, 'w1 w2'],
    ['beside one that keeps its number', [zero('g1'), w1], { activeGateways: 2 }, 2, 'w1'],
    ['two that shared a number', [zero('g1'), zero('g2'), w1], { activeGateways: 2 }, 2, 'g1 g2'],
    ['the same, and nobody says', [zero('g1'), zero('g2')], {}, 2, '', SHARED.replace('3', '0')],
    ['fewer than are labelled: the rest stands by', [any('a'), any('b'), any('c')], { activeGateways: 2 }, 2, ''],
    ['three by name', [w1, w2, w3], { gateways: [w3, w1, w2] }, 3, 'w3 w1 w2'],
    ['by name, and a number', [w1, w2, w3], { gateways: [w3, w1, w2], activeGateways: 2 }, 2, 'w3 w1 w2'],
    ['a number, and fewer by name', [w1, w2], { gateways: [w1], activeGateways: 3 }, 3, 'w1', only('w1', 'w2')],
    ['the one that is labelled is away', [cordoned('g1', 0), w1], { activeGateways: 2 }, 2, 'w1'],
    [
      'three are wanted, two named',
      [w1, w2, w3],
      { gateways: [w1, w2], activeGateways: 3 },
      3,
      'w1 w2',
      short(3, 2, label('w3')),
    ],
  ]
  for (const [say, seen, given, count, labelled, note] of rows) {
    const made = plan(withNodes(...seen), given)
    t.equal(made.activeGateways, count, say)
    t.equal(parseSiteFile('site.yaml', made.site).activeGateways, count, `${say}: in the site file`)
    t.equal(made.nodes.map(({ node }) => node).join(' '), labelled, say)
    for (const { labels } of made.nodes) t.strictSame(labels, { 'sealane.io/gateway': 'true' }, say)
    t.strictSame(made.notes, note === undefined ? [] : [note], say)
  }
})

t.test('how many gateways are active stays as it is installed, and the site file does as well', async (t) => {
  const found = withNodes(w1, w2, { node: 'w3' })
  const liveOf = (made: ReturnType<typeof plan>) => {
    const config = made.objects.find(({ kind, metadata }) => kind === 'ConfigMap' && metadata.name === 'sealane-site')
    return new Map(config === undefined ? [] : [[titleOf(refOf(config)), config]])
  }
  const again = (before: ReturnType<typeof plan>, given: Partial<JoinOptions>) =>
    planJoin(found, { ...NOTHING, ...given, clusterId: parseClusterId('c1') }, DEFAULT_VALUES, {
      live: liveOf(before),
      asked: {},
    })
  t.notMatch(plan(found).site, /activeGateways/, 'an image of the last release reads the file of a usual join')
  const three = plan(found, { activeGateways: 3 })
  t.match(three.site, /activeGateways: 3/)
  t.equal(again(three, {}).site, three.site)
  t.equal(again(three, { activeGateways: 3 }).site, three.site)
  t.match(again(three, { activeGateways: 4 }).site, /activeGateways: 4/)
  t.notMatch(again(three, { activeGateways: 2 }).site, /activeGateways/)
  t.equal(again(three, { activeGateways: 2 }).activeGateways, 2)
})

t.test('the port of the overlay: as installed, unless a flag says another one', async (t) => {
  const found = discover(fixture('kubeadm-flannel'))
  const again = (before: string, given: Partial<JoinOptions> = {}) => {
    const config = plan(found).objects.find(({ metadata }) => metadata.name === 'sealane-site')
    const live = new Map(
      config === undefined ? [] : [[titleOf(refOf(config)), { ...config, data: { 'site.yaml': before } }]],
    )
    return planJoin(found, { ...NOTHING, ...given, clusterId: parseClusterId('c1') }, DEFAULT_VALUES, {
      live,
      asked: {},
    })
  }
  const portOf = ({ site }: { readonly site: string }): number => parseSiteFile('site.yaml', site).overlay.port
  const usual = plan(found)
  t.notMatch(usual.site, /overlay/, 'an image of the last release reads the file of a usual join')
  t.strictSame(usual.notes, [])
  const chosen = plan(found, { overlayPort: 4811, allowedNamespaces: ['default'] })
  t.equal(portOf(chosen), 4811)
  t.strictSame(chosen.notes, [], 'nothing moves at the first join')
  t.equal(again(chosen.site).site, chosen.site)
  t.equal(again(chosen.site, { overlayPort: 4811 }).site, chosen.site)
  const moved = again(chosen.site, { overlayPort: 4812 })
  t.strictSame([portOf(moved), moved.overlayPort], [4812, 4812])
  t.match(
    moved.notes.join(),
    /^the overlay moves from UDP 4811 to UDP 4812: open it between the nodes; .* until all routeagents/,
  )
  t.notMatch(again(chosen.site, { overlayPort: 4810 }).site, /overlay/)
  t.equal(portOf(again(chosen.site, { labels: { a: 'b' } })), 4811, 'another change leaves it as it is')
})

t.test('flags for the port of the overlay that cannot be', async (t) => {
  const parse = (port: string): number | undefined =>
    addJoinKubeOptions(new Command()).parse(['--overlay-port', port], { from: 'user' }).opts<JoinKubeOptions>()
      .overlayPort
  t.equal(parse('4811'), 4811)
  for (const port of ['', '0', '65536', '4810x', '-1', '1e3', '4498', '4499', '4500', '4507'])
    t.throws(() => parse(port), { message: /^--overlay-port ".*": expected a / }, port)
})

t.test('GKE lets critical pods in by a quota', async (t) => {
  const quotas = (name: string): number =>
    plan(discover(fixture(name))).objects.filter(({ kind }) => kind === 'ResourceQuota').length
  t.equal(quotas('gke'), 1)
  t.equal(quotas('kubeadm-flannel'), 0)
})

t.test('only what no flag answers is asked', async (t) => {
  const ask = (field: 'podCIDRs' | 'serviceCIDRs' | 'gateways') => ({ field, why: 'unknown', suggestion: [] })
  const found = { ...discover(fixture('kind')), asks: [ask('podCIDRs'), ask('serviceCIDRs'), ask('gateways')] }
  const fields = (given: Partial<JoinOptions>): string =>
    openQuestions(found, { ...NOTHING, ...given })
      .map(({ field }) => field)
      .join(' ')
  t.equal(fields({}), 'podCIDRs serviceCIDRs gateways')
  t.equal(fields({ podCIDRs: ['10.0.0.0/16'] }), 'serviceCIDRs gateways')
  t.equal(fields({ serviceCIDRs: ['10.0.0.0/16'], gateways: [{ node: 'a' }] }), 'podCIDRs')
})

t.test('a second join without flags says what the first one said', (t) => {
  const found = discover({ ...fixture('kubeadm-flannel'), objects: [] })
  const first = plan(found, {
    podCIDRs: ['10.9.0.0/16'],
    serviceCIDRs: ['10.10.0.0/16'],
    labels: { region: 'eu' },
    gateways: [{ node: 'n1' }],
  })
  const config = first.objects.find(({ kind, metadata }) => kind === 'ConfigMap' && metadata.name === 'sealane-site')
  const again = discover({ ...fixture('kubeadm-flannel'), objects: [config] })
  t.strictSame(
    openQuestions(again, NOTHING).map(({ field }) => field),
    ['gateways'],
  )
  t.equal(plan(again, { gateways: [{ node: 'n1' }] }).site, first.site)
  const other = plan(again, { labels: { zone: 'b' }, podCIDRs: ['10.11.0.0/16'], gateways: [{ node: 'n1' }] })
  t.strictSame(other.podCIDRs, ['10.11.0.0/16'], 'flags count for more')
  const labelsOf = (text: string): unknown => parseSiteFile('site.yaml', text).labels
  t.strictSame(labelsOf(other.site), { region: 'eu', zone: 'b' }, 'a label more')
  const less = plan(again, { labels: { region: null, zone: 'b' }, gateways: [{ node: 'n1' }] })
  t.strictSame(labelsOf(less.site), { zone: 'b' }, 'a label taken away')
  t.end()
})

t.test('dns listens where its Service may have its address: by IPv6 too in a cluster with IPv6', async (t) => {
  const found = discover(fixture('kubeadm-flannel'))
  const listen = (one: { readonly site: string }) => parseSiteFile('site.yaml', one.site).dns.listen
  const [ipv4, both] = [['0.0.0.0:5353'], ['0.0.0.0:5353', '[::]:5353']]
  const first = plan(found, { podCIDRs: ['10.9.0.0/16'], serviceCIDRs: ['10.8.0.0/16'] })
  t.strictSame(listen(first), ipv4)
  t.strictSame(listen(plan(found, { podCIDRs: ['fd00:9::/48', '10.9.0.0/16'] })), both)
  t.strictSame(listen(plan(found, { serviceCIDRs: ['fd00:8::/108'] })), both)
  const again = (from: string, ...serviceCIDRs: readonly string[]) => {
    const objects = first.objects.map((object) =>
      object.metadata.name === 'sealane-site' ? { ...object, data: { 'site.yaml': from } } : object,
    )
    const live = new Map(objects.map((object) => [titleOf(refOf(object)), object]))
    const chosen = { ...NOTHING, podCIDRs: ['10.9.0.0/16'], serviceCIDRs, clusterId: parseClusterId('c1') }
    return planJoin(found, chosen, DEFAULT_VALUES, { live, asked: {} })
  }
  t.strictSame(listen(again(first.site, '10.8.0.0/16', 'fd00:8::/108')), both, 'a cluster that gets IPv6 later')
  const both6 = plan(found, { podCIDRs: ['10.9.0.0/16'], serviceCIDRs: ['10.8.0.0/16', 'fd00:8::/108'] }).site
  t.equal(again(both6, '10.8.0.0/16', 'fd00:8::/108').site, both6, 'the same again')
  const earlier = both6.replace(/\n *- "?\[::\]:5353"?/, '')
  t.not(earlier, both6)
  const same = again(earlier, '10.8.0.0/16', 'fd00:8::/108')
  t.strictSame(listen(same), both, 'a member of an earlier build, although no fact changes')
  const more = earlier.replace(/( *)listen:/, '$1reportedBy: me\n$1listen:')
  t.match(again(more, '10.8.0.0/16', 'fd00:8::/108').site, /reportedBy: me/, 'what else is stated of dns stays')
  t.equal(again(first.site, '10.8.0.0/16').site, first.site, 'a cluster without IPv6')
  const own = first.site.replace('0.0.0.0:5353', '10.9.0.7:5353')
  t.strictSame(listen(again(own, '10.8.0.0/16', 'fd00:8::/108')), ['10.9.0.7:5353'], 'what a user wrote stays')
})

t.test('what is exposed: only stated if asked for, and kept by a second join', async (t) => {
  const found = discover(fixture('kubeadm-flannel'))
  const first = plan(found)
  t.notMatch(first.site, /exposure/, 'the agent of a new member exposes exports')
  t.same(first.notes.filter(isAboutPods), [])
  const stated = (one: { readonly site: string }) => parseSiteFile('site.yaml', one.site).exposure
  for (const exposure of ['pods', 'exports', 'nothing'] as const) {
    const said = plan(found, { exposure })
    t.equal(stated(said), exposure)
    t.equal(said.notes.filter(isAboutPods).length, exposure === 'pods' ? 1 : 0, exposure)
    const config = said.objects.find(({ metadata }) => metadata.name === 'sealane-site')
    const live = new Map(config === undefined ? [] : [[titleOf(refOf(config)), config]])
    const again = (given: Partial<JoinOptions>) =>
      planJoin(found, { ...NOTHING, ...given, clusterId: parseClusterId('c1') }, DEFAULT_VALUES, { live, asked: {} })
    t.equal(again({}).site, said.site)
    t.equal(stated(again({ exposure: 'nothing' })), 'nothing')
    t.equal(stated(again({ labels: { region: 'eu' } })), exposure)
  }
  const member = { ...found, earlier: { ...found.earlier, clusterId: 'c1' } }
  t.equal(plan(member).notes.filter(isAboutPods).length, 1, 'a member of a release without the choice')
  t.equal(plan(member, { exposure: 'exports' }).notes.filter(isAboutPods).length, 0)
})

function isAboutPods(note: string): boolean {
  return note.includes('may call all pods')
}
