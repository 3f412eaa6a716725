import t from 'tap'
import { answer } from '../../../dns/zone/answer.ts'
import { MAX_HOSTS, type ServiceIndex, serviceEntry } from '../../../dns/zone/service-index.ts'
import { formatAnswer } from '../../../dns/zone/zone-text.ts'
import { TYPE_A, TYPE_SRV } from '../../../dns/message/wire.ts'
import { parseDnsName } from '../../../model/dns-name.ts'
import { serviceKey } from '../../../model/ids.ts'
import type { EndpointSlice, TrafficPolicy } from '../../../model/objects.ts'
import { LABEL_SERVICE_NAME } from '../../../model/spec-constants.ts'
import { observedAt } from '../../support/objects/access-objects.ts'
import { clusterObject } from '../../support/objects/cluster-objects.ts'
import { internalIps, nodeObject } from '../../support/objects/node-objects.ts'
import { clusterSetIp, gateway, headless, slice, syncedIndex, workedExamples } from '../zone-fixture.ts'

function addresses(index: ServiceIndex, name: string): string {
  const service = index.service('shop', name)
  return service === undefined ? 'unknown' : [...service.a, ...service.aaaa].join(' ')
}

t.test('the index follows the objects', async (t) => {
  const api = workedExamples()
  const index = await syncedIndex(api)
  const touched: string[] = []
  index.onServiceChange((key) => touched.push(key))
  const moved = slice('db', 'west', [{ addresses: ['10.2.0.9'] }])
  const steps: { say: string; act: () => void; want: string; touched: string }[] = [
    {
      say: 'endpoint gone',
      act: () => api.put(slice('db', 'east', [{ addresses: ['10.1.0.5'] }])),
      want: '10.1.0.5 10.2.0.9',
      touched: 'shop/db',
    },
    {
      say: 'slice gone',
      act: () => api.drop('EndpointSlice', 'db-west-v4', 'shop'),
      want: '10.1.0.5',
      touched: 'shop/db',
    },
    { say: 'slice back', act: () => api.put(moved), want: '10.1.0.5 10.2.0.9', touched: 'shop/db' },
    {
      say: 'slice of another service now',
      act: () =>
        api.put({
          ...moved,
          metadata: { ...moved.metadata, labels: { ...moved.metadata.labels, [LABEL_SERVICE_NAME]: 'raw' } },
        }),
      want: '10.1.0.5',
      touched: 'shop/db shop/raw',
    },
    { say: 'unexported', act: () => api.drop('ServiceImport', 'db', 'shop'), want: 'unknown', touched: 'shop/db' },
    { say: 'exported again', act: () => api.put(headless('db', [])), want: '10.1.0.5', touched: 'shop/db' },
    {
      say: 'another type',
      act: () => api.put(clusterSetIp('db', ['243.0.0.9'], [])),
      want: '243.0.0.9',
      touched: 'shop/db',
    },
    {
      say: 'someone else changed',
      act: () => api.put(clusterSetIp('web', ['243.0.0.70'], [])),
      want: '243.0.0.9',
      touched: 'shop/web',
    },
  ]
  for (const step of steps) {
    const before = index.serial
    touched.length = 0
    step.act()
    t.equal(addresses(index, 'db'), step.want, step.say)
    t.equal(touched.join(' '), step.touched, `${step.say}: only what changed is built anew`)
    t.ok(index.serial > before, `${step.say}: the serial counts up`)
  }
})

t.test('a namespace lives as long as a service of it does', async (t) => {
  const api = workedExamples()
  const index = await syncedIndex(api)
  t.equal(index.hasNamespace('shop'), true)
  for (const { name } of index.services()) api.drop('ServiceImport', name, 'shop')
  t.equal(index.hasNamespace('shop'), false)
  t.equal(index.size, 0)
})

t.test('endpoints of clusters that do not answer are left out at once', async (t) => {
  const api = workedExamples()
  const index = await syncedIndex(api, 'west')
  const touched: string[] = []
  index.onServiceChange((key) => touched.push(key))
  const steps = [
    { say: 'nobody has reported: everything stays', put: undefined, want: '10.1.0.5 10.1.0.6 10.2.0.9' },
    { say: 'east is up', put: gateway(['east']), want: '10.1.0.5 10.1.0.6 10.2.0.9' },
    { say: 'east is down', put: gateway([], ['east']), want: '10.2.0.9' },
    { say: 'east is back', put: gateway(['east']), want: '10.1.0.5 10.1.0.6 10.2.0.9' },
  ]
  for (const step of steps) {
    if (step.put !== undefined) api.put(step.put)
    t.equal(addresses(index, 'db'), step.want, step.say)
    t.equal(addresses(index, 'web'), '243.0.0.7', `${step.say}: the clusterset IP stays`)
  }
  t.equal(touched.includes('shop/web'), false)
})

t.test('endpoints of a cluster whose pods would hide our own nodes are left out', async (t) => {
  const api = workedExamples()
  const index = await syncedIndex(api, 'west')
  const member = (id: string, at: number, podCIDR: string) =>
    api.put(clusterObject({ id, index: at, podCIDRs: [podCIDR] }))
  const node = (address: string) => api.put(nodeObject('gw', { status: internalIps(address) }))
  const everything = '10.1.0.5 10.1.0.6 10.2.0.9'
  const steps: { say: string; act: () => void; want: string }[] = [
    { say: 'east, whose Cluster is not known yet', act: () => member('west', 1, '10.2.0.0/16'), want: everything },
    { say: 'east is flat and far away', act: () => member('east', 2, '10.1.0.0/16'), want: everything },
    { say: 'a node of ours lives there', act: () => node('10.1.0.200'), want: '10.2.0.9' },
    { say: 'though its lane is up', act: () => api.put(gateway(['east'])), want: '10.2.0.9' },
    { say: 'the node has moved', act: () => node('192.0.2.1'), want: everything },
    { say: 'it claims our pods', act: () => member('east', 2, '10.2.128.0/17'), want: '10.2.0.9' },
  ]
  for (const { say, act, want } of steps) {
    act()
    t.equal(addresses(index, 'db'), want, say)
  }
})

t.test('fields that others got wrong are passed over', async (t) => {
  const entry = serviceEntry(
    headless('db', [{ name: 'PG', protocol: 'TCP', port: 5432 }]),
    [
      slice(
        'db',
        'east',
        [
          { addresses: ['nonsense', '127.0.0.1', '169.254.169.254', '0.0.0.0', '10.1.0.5'], hostname: 'Db_0' },
          { addresses: [], hostname: 'empty' },
          { addresses: ['10.1.0.6'], hostname: 'DB-1' },
        ],
        [{ name: 'PG', protocol: 'TCP' }],
      ),
      slice('db', 'not a label', [{ addresses: ['10.9.0.1'] }]),
    ],
    undefined,
  )
  t.same(entry.a, ['10.1.0.5', '10.1.0.6'])
  t.same(
    entry.hosts.map((host) => `${host.hostname}.${host.cluster}`),
    ['10-1-0-5.east', 'db-1.east'],
  )
  t.same(entry.hosts[0]?.ports, [{ name: 'pg', protocol: 'tcp', port: 5432 }])
})

t.test('a very large service tells one subset, fair to every cluster', async (t) => {
  const many = (cluster: string, net: number, count: number) =>
    slice(
      'db',
      cluster,
      Array.from({ length: count }, (_, i) => ({ addresses: [`10.${net}.${i >> 8}.${i & 255}`] })),
    )
  const entry = serviceEntry(headless('db', []), [many('east', 1, 5000), many('west', 2, 10)], undefined)
  t.equal(entry.hosts.length, MAX_HOSTS)
  t.equal(entry.hosts.filter((host) => host.cluster === 'west').length, 10)
  t.same(
    entry.a,
    entry.hosts.flatMap((host) => host.a),
    'A and hostname records come from the same subset',
  )
})

t.test('above the bound pods are chosen, and each with all of its addresses', async (t) => {
  const six = (i: number): string => `fd00:${i.toString(16)}::1`
  const keyed = (cluster: string, list: readonly { addresses: string[]; pod: string }[]) => {
    const plain = slice(
      'db',
      cluster,
      list.map(({ addresses }) => ({ addresses })),
    )
    const pods = list.map(({ pod }) => pod).join()
    return { ...plain, metadata: { ...plain.metadata, annotations: { 'sealane.io/pods': pods } } }
  }
  const key = (i: number): string => i.toString(16).padStart(8, '0')
  const dual = (cluster: string, net: number, count: number) => {
    const numbers = Array.from({ length: count }, (_, i) => i)
    const name = (family: string) => ({ name: `db-${cluster}-${family}` })
    const four = keyed(
      cluster,
      numbers.map((i) => ({ addresses: [`10.${net}.${i >> 8}.${i & 255}`], pod: key(i) })),
    )
    const sixes = keyed(
      cluster,
      numbers.map((i) => ({ addresses: [six(net * 4096 + i)], pod: key(i) })),
    )
    return [
      { ...four, metadata: { ...four.metadata, ...name('4') } },
      { ...sixes, addressType: 'IPv6' as const, metadata: { ...sixes.metadata, ...name('6') } },
    ]
  }
  const all = serviceEntry(headless('db', []), dual('east', 1, 600), undefined)
  t.same([all.a.length, all.aaaa.length, all.hosts.length], [600, 600, 1200])
  const cut = serviceEntry(headless('db', []), [...dual('east', 1, 3000), ...dual('west', 2, 20)], undefined)
  t.same([cut.a.length, cut.aaaa.length], [MAX_HOSTS, MAX_HOSTS])
  const whose = (text: string): number => Number(text.split('.')[2]) * 256 + Number(text.split('.')[3])
  const east = (texts: readonly string[], net: string) => texts.filter((text) => text.startsWith(net))
  t.same(
    east(cut.aaaa, 'fd00:1').sort(),
    east(cut.a, '10.1.')
      .map((text) => six(4096 + whose(text)))
      .sort(),
    'the same pods in both families',
  )
  t.equal(east(cut.a, '10.2.').length, 20, 'fair to every cluster')
  const crowd = keyed(
    'east',
    Array.from({ length: 3000 }, (_, i) => ({ addresses: [`10.1.${i >> 8}.${i & 255}`], pod: 'aa' })),
  )
  t.equal(serviceEntry(headless('db', []), [crowd], undefined).a.length, MAX_HOSTS, 'one pod is no crowd')
  for (const text of ['', 'x,y', 'aa,bb,cc', '"; drop,é']) {
    const wrong = slice('db', 'east', [{ addresses: ['10.1.0.1'] }, { addresses: ['10.1.0.2'] }])
    const bad = { ...wrong, metadata: { ...wrong.metadata, annotations: { 'sealane.io/pods': text } } }
    t.same(serviceEntry(headless('db', []), [bad], undefined).a, ['10.1.0.1', '10.1.0.2'], text)
  }
})

t.test('10,000 services: a change costs its own service', async (t) => {
  const api = workedExamples()
  for (let i = 0; i < 10_000; i += 1) api.put(clusterSetIp(`s-${i}`, [`245.0.${i >> 8}.${i & 255}`], []))
  const index = await syncedIndex(api)
  for (const service of index.services()) index.service(service.namespace, service.name)
  const kept = index.service('shop', 's-1')
  api.put(clusterSetIp('s-2', ['245.1.0.1'], []))
  t.equal(index.service('shop', 's-1'), kept, 'the others are not built anew')
  t.equal(addresses(index, 's-2'), '245.1.0.1')
  t.equal(serviceKey('shop', 's-2'), 'shop/s-2')
})

t.test('answers about a headless service follow a policy that says so', async (t) => {
  const api = workedExamples()
  const index = await syncedIndex(api)
  for (const kind of ['TrafficPolicy', 'ClusterTrafficPolicy', 'Cluster'] as const)
    await api.cache(kind).whenSynced(AbortSignal.timeout(5000))
  const touched: string[] = []
  index.onServiceChange((key) => touched.push(key))
  const policy = (spec: TrafficPolicy['spec']): void =>
    api.put({
      apiVersion: 'sealane.io/v1alpha1',
      kind: 'TrafficPolicy',
      metadata: { namespace: 'shop', name: 'p', uid: 'p' },
      spec: { targetRefs: [{ name: 'db' }], ...spec },
    })
  const ask = (text: string, type: number): string => {
    const name = parseDnsName(text)
    if (name.kind === 'malformed' || name.kind === 'notOurs') throw new Error(`${text} is ${name.kind}`)
    return formatAnswer(answer(index, { name, type }, 0))
  }
  const db = 'db.shop.svc.clusterset.local.'
  const all = '10.1.0.5 10.1.0.6 10.2.0.9'
  const order = [{ local: {} }, { any: {} }]
  policy({ order })
  t.equal(addresses(index, 'db'), all, 'it does not say so')
  t.same(touched, [])
  policy({ order, headless: 'follow' })
  t.equal(addresses(index, 'db'), '10.2.0.9', 'this cluster alone')
  t.same(touched, ['shop/db'])
  t.equal(ask(`_pg._tcp.${db}`, TYPE_SRV), `_pg._tcp.${db} 5 IN SRV 0 100 5432 db-0.west.${db}`)
  t.equal(ask(`db-0.east.${db}`, TYPE_A), `db-0.east.${db} 5 IN A 10.1.0.5`, 'each pod keeps its own name')
  api.put(slice('db', 'west', [{ addresses: ['10.2.0.9'], conditions: { ready: false } }]))
  t.equal(addresses(index, 'db'), '10.1.0.5 10.1.0.6', 'the next tier')
  api.put(slice('db', 'west', [{ addresses: ['10.2.0.9'] }]))
  api.put(clusterObject({ id: 'west', drained: true }))
  t.equal(addresses(index, 'db'), '10.1.0.5 10.1.0.6', 'this cluster is drained')
  policy({ order: [{ clusters: ['south'] }], whenNoneReady: 'refuse', headless: 'follow' })
  t.equal(addresses(index, 'db'), '', 'refused')
  t.match(ask(db, TYPE_A), /^; NODATA/)
  t.equal(ask(`db-0.east.${db}`, TYPE_A), `db-0.east.${db} 5 IN A 10.1.0.5`)
  t.equal(addresses(index, 'raw'), '10.1.0.8', 'another service')
  policy({ spillBelowPercent: 101 })
  t.equal(addresses(index, 'db'), '', 'what was refused stays so while the policy is not valid')
  const young = await syncedIndex(api)
  await api.cache('TrafficPolicy').whenSynced(AbortSignal.timeout(5000))
  t.equal(addresses(young, 'db'), all)
  const inForce = { uid: 'p', generation: 1, spec: { order: [{ clusters: ['east'] }], headless: 'follow' as const } }
  await api.applyStatus({ ...api.get('TrafficPolicy', 'p', 'shop')!, status: { conditions: observedAt(4), inForce } })
  t.equal(addresses(young, 'db'), '10.1.0.5 10.1.0.6', 'what the status keeps, for one that starts')
  t.equal(addresses(index, 'db'), '', 'and the other has seen a later one')
  api.drop('TrafficPolicy', 'p', 'shop')
  t.equal(addresses(index, 'db'), all, 'without a policy')
})

t.test('answers that follow a policy leave a cluster that is silent for a moment', async (t) => {
  const api = workedExamples()
  const up = gateway(['east'])
  const links = (cause?: 'ProbesUnanswered'): void => {
    const connections = up.status!.connections.map((one) => ({ ...one, ...(cause && { cause }) }))
    api.put({ ...up, status: { ...up.status!, connections } })
  }
  links()
  const index = await syncedIndex(api)
  await api.cache('TrafficPolicy').whenSynced(AbortSignal.timeout(5000))
  const touched: string[] = []
  index.onServiceChange((key) => touched.push(key))
  links('ProbesUnanswered')
  t.equal(addresses(index, 'db'), '10.1.0.5 10.1.0.6 10.2.0.9', 'no policy')
  links()
  api.put({
    apiVersion: 'sealane.io/v1alpha1',
    kind: 'TrafficPolicy',
    metadata: { namespace: 'shop', name: 'p', uid: 'p' },
    spec: { targetRefs: [{ name: 'db' }], order: [{ clusters: ['east'] }, { any: {} }], headless: 'follow' },
  })
  t.equal(addresses(index, 'db'), '10.1.0.5 10.1.0.6')
  links('ProbesUnanswered')
  t.equal(addresses(index, 'db'), '10.2.0.9', 'the next tier')
  touched.length = 0
  links('ProbesUnanswered')
  t.same(touched, [], 'the same again')
  links()
  t.equal(addresses(index, 'db'), '10.1.0.5 10.1.0.6', 'it answers')
})

t.test('answers that follow a policy are planned for each family, and SRV records for each port', async (t) => {
  const api = workedExamples()
  const index = await syncedIndex(api)
  for (const kind of ['TrafficPolicy', 'ClusterTrafficPolicy', 'ClusterAccessPolicy', 'Cluster'] as const)
    await api.cache(kind).whenSynced(AbortSignal.timeout(5000))
  const [pg, admin] = (['pg', 'admin'] as const).map((name, i) => ({ name, protocol: 'TCP' as const, port: 5432 + i }))
  const of = (cluster: string, address: string, ports: EndpointSlice['ports'], six = false): EndpointSlice => {
    const made = slice('twin', cluster, [{ addresses: [address], hostname: 'h' }])
    const name = `${made.metadata.name}-${six ? 6 : 4}`
    return { ...made, metadata: { ...made.metadata, name }, addressType: six ? 'IPv6' : 'IPv4', ports: ports ?? [] }
  }
  api.put(headless('twin', [pg!, admin!]))
  api.put(of('east', '10.1.0.1', [pg!]))
  api.put(of('west', '10.2.0.1', [pg!, admin!]))
  api.put(of('west', 'fd00:2::1', [pg!, admin!], true))
  const put = (spec: TrafficPolicy['spec']): void =>
    api.put({
      apiVersion: 'sealane.io/v1alpha1',
      kind: 'TrafficPolicy',
      metadata: { namespace: 'shop', name: 'p', uid: 'p' },
      spec: { targetRefs: [{ name: 'twin' }], headless: 'follow', ...spec },
    })
  const targets = (port: string): readonly string[] => {
    const name = parseDnsName(`_${port}._tcp.twin.shop.svc.clusterset.local.`)
    if (name.kind === 'malformed' || name.kind === 'notOurs') throw new Error(name.kind)
    const found = answer(index, { name, type: TYPE_SRV }, 0)
    return found.kind === 'answer' ? found.records.flatMap((one) => (one.type === 'SRV' ? [one.target] : [])) : []
  }
  const [east, west] = ['east', 'west'].map((id) => `h.${id}.twin.shop.svc.clusterset.local.`)
  put({ order: [{ clusters: ['east'] }, { any: {} }] })
  const twin = (): readonly (readonly string[] | undefined)[] => {
    const found = index.service('shop', 'twin')
    return [found?.a, found?.aaaa]
  }
  t.same(twin(), [['10.1.0.1'], ['fd00:2::1']], 'the first tier has no IPv6: its next one answers')
  t.same(targets('admin'), [west], 'east does not serve it')
  t.same(targets('pg'), [east, west], 'by any address of a host')
  api.drop('EndpointSlice', 'twin-west-v4-6', 'shop')
  t.same([targets('pg'), targets('admin')], [[east], [west]])
  put({ order: [{ clusters: ['east'] }], whenNoneReady: 'refuse' })
  t.same([targets('pg'), targets('admin')], [[east], []], 'refused')
  put({ order: [{ clusters: ['east'] }, { any: {} }] })
  for (const id of ['east', 'west']) api.put(clusterObject({ id }))
  api.put({
    apiVersion: 'sealane.io/v1alpha1',
    kind: 'ClusterAccessPolicy',
    metadata: { name: 'default' },
    spec: { default: 'allow', egress: [{ clusters: ['west'] }] },
  })
  t.same([twin()[0], targets('pg')], [['10.2.0.1'], [west]], 'egress rules shut east')
})
