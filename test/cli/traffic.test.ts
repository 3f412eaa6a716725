/** `sealane show traffic`: the shares of exporting clusters, by the same plan as balancing. */
import fc from 'fast-check'
import t, { type Test } from 'tap'
import {
  type TrafficObjects,
  invalidPolicies,
  policyText,
  serviceText,
  shareText,
  trafficRows,
} from '../../cli/status/traffic/plan-traffic.ts'
import { FileApi } from '../../kubeapi/files/file-api.ts'
import type {
  Cluster,
  ClusterTrafficPolicy,
  EndpointSlice,
  Gateway,
  KubeObject,
  TrafficPolicy,
} from '../../model/objects.ts'
import { ANNOTATION_DRAINED, sharesOfService } from '../../model/services/service-shares.ts'
import { TrafficPolicies } from '../../model/services/traffic-policies.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { CapturingLogger } from '../../runtime/logging/capturing-logger.ts'
import { eventually } from '../support/eventually.ts'
import { clusterAccessPolicy, observedAt } from '../support/objects/access-objects.ts'
import { clusterObject, membershipObject } from '../support/objects/cluster-objects.ts'
import { importObject, sliceObject } from '../support/objects/service-objects.ts'
import { runCli, startCli } from './run-cli.ts'
import { SiteFolder } from './site-folder.ts'

const OURS = { 'app.kubernetes.io/managed-by': 'sealane' }

function imported(name: string) {
  const service = importObject({ name, labels: OURS }, { type: 'ClusterSetIP', ips: ['245.0.0.7'] })
  return { ...service, status: { clusters: [{ cluster: 'milano' }, { cluster: 'oslo' }, { cluster: 'paris' }] } }
}

/** A slice of a service in a cluster, with endpoints that are ready, and others that are not. */
function slice(name: string, cluster: string, ready: number, waiting = 0, drained = false): EndpointSlice {
  const index = cluster.charCodeAt(0)
  const labels = {
    ...OURS,
    'multicluster.kubernetes.io/service-name': name,
    'multicluster.kubernetes.io/source-cluster': cluster,
  }
  const endpoints = Array.from({ length: ready + waiting }, (_, i) => ({
    addresses: [`10.${index}.0.${i + 1}`],
    conditions: { ready: i < ready },
  }))
  const annotations = drained ? { annotations: { [ANNOTATION_DRAINED]: 'true' } } : {}
  return sliceObject({ name: `${name}-${cluster}`, labels, ...annotations }, { endpoints, ports: [] })
}

function gateway(...up: string[]): Gateway {
  const link = { lane: 0, endpoint: 'x', message: '', usingNat: false, rxBytes: 0, txBytes: 0 }
  return {
    apiVersion: 'sealane.io/v1alpha1',
    kind: 'Gateway',
    metadata: { name: 'gw' },
    status: { version: '0.1.0', lanes: [], connections: up.map((cluster) => ({ ...link, cluster, state: 'up' })) },
  }
}

function policy(name: string, spec: TrafficPolicy['spec']): TrafficPolicy {
  return { apiVersion: 'sealane.io/v1alpha1', kind: 'TrafficPolicy', metadata: { name, namespace: 'shop' }, spec }
}

const DEFAULT: ClusterTrafficPolicy = {
  apiVersion: 'sealane.io/v1alpha1',
  kind: 'ClusterTrafficPolicy',
  metadata: { name: 'default' },
  spec: { order: [{ local: {} }, { any: {} }] },
}

const CANARY = policy('canary', {
  targetRefs: [{ name: 'web' }],
  order: [{ any: {}, weights: { milano: 8900, oslo: 1000, paris: 100 } }],
})

const CLUSTERS = [
  clusterObject({ id: 'milano', podCIDRs: ['10.109.0.0/16'] }),
  clusterObject({ id: 'oslo', index: 2, podCIDRs: ['10.111.0.0/16'] }),
  clusterObject({ id: 'paris', index: 3, podCIDRs: ['10.112.0.0/16'] }),
]

/** milano imports web and db, each from milano, oslo and paris. */
function world(change: Partial<TrafficObjects> = {}): TrafficObjects {
  return {
    membership: membershipObject(),
    clusters: CLUSTERS,
    imports: ['web', 'db'].map(imported),
    slices: ['web', 'db'].flatMap((name) => [
      slice(name, 'milano', 2),
      slice(name, 'oslo', 1, 1),
      slice(name, 'paris', 3),
    ]),
    gateways: [gateway('oslo', 'paris')],
    nodes: [],
    policies: [],
    clusterPolicies: [],
    accessPolicies: [],
    ...change,
  }
}

function lines(objects: TrafficObjects, name = 'web'): string[] {
  return trafficRows(objects, (_, one) => one === name).map((row) => {
    const { cluster, tier = '-', ready, total, weight = '-', share, reason } = row
    return `${cluster} ${tier} ${ready}/${total} ${weight} ${shareText(share)} ${reason} ${policyText(row)}`
  })
}

t.test('rows: without policy, with one, and with what is drained, cut, or refused', async (t) => {
  t.same(lines(world()), [
    'milano - 2/2 - 33.33 % ByReadyEndpoints -',
    'oslo - 1/2 - 16.67 % ByReadyEndpoints -',
    'paris - 3/3 - 50 % ByReadyEndpoints -',
  ])
  t.same(lines(world({ policies: [CANARY], clusterPolicies: [DEFAULT] })), [
    'milano 0 2/2 8900 89 % ByWeight TrafficPolicy canary',
    'oslo 0 1/2 1000 10 % ByWeight TrafficPolicy canary',
    'paris 0 3/3 100 1 % ByWeight TrafficPolicy canary',
  ])
  t.same(lines(world({ policies: [CANARY], clusterPolicies: [DEFAULT] }), 'db'), [
    'milano 0 2/2 - 100 % ByReadyEndpoints ClusterTrafficPolicy default',
    'oslo 1 1/2 - 0 % TierIdle ClusterTrafficPolicy default',
    'paris 1 3/3 - 0 % TierIdle ClusterTrafficPolicy default',
  ])
  t.same(lines(world({ gateways: [gateway('paris')] })), [
    'milano - 2/2 - 40 % ByReadyEndpoints -',
    'oslo - 1/2 - 0 % ClusterNotReached -',
    'paris - 3/3 - 60 % ByReadyEndpoints -',
  ])
  const drained = CLUSTERS.map((one) =>
    one.spec.id === 'oslo' ? { ...one, spec: { ...one.spec, drained: true } } : one,
  )
  const slices = [slice('web', 'milano', 2), slice('web', 'oslo', 1), slice('web', 'paris', 3, 0, true)]
  t.same(lines(world({ clusters: drained, slices })), [
    'milano - 2/2 - 100 % ByReadyEndpoints -',
    'oslo - 1/1 - 0 % ClusterDrained -',
    'paris - 3/3 - 0 % ServiceDrained -',
  ])
  const clash = [...CLUSTERS.slice(0, 2), clusterObject({ id: 'paris', index: 3, podCIDRs: ['10.109.0.0/16'] })]
  t.match(lines(world({ clusters: clash }))[2], /^paris .* 0 % ClusterNotReached/, 'its range is that of this cluster')
  t.match(lines(world({ slices: [] }))[0], /^milano - 0\/0 - 0 % NoneReadyRefused/, 'exported without an endpoint')
})

t.test('pods with addresses of both families count once', async (t) => {
  const both = [slice('web', 'oslo', 2), { ...slice('web', 'oslo', 3), addressType: 'IPv6' as const }]
  t.match(lines(world({ slices: both }))[1], /^oslo - 2\/2/)
  t.match(lines(world({ slices: both.slice(1) }))[1], /^oslo - 3\/3/)
})

t.test('a policy that is not valid is named, and does not count', async (t) => {
  const wrong = policy('wrong', { spillBelowPercent: 101 })
  const objects = world({ policies: [wrong] })
  t.match(lines(objects)[0], /ByReadyEndpoints -$/)
  t.same(invalidPolicies(objects), [
    'TrafficPolicy shop/wrong is not valid, and not counted here: spec.spillBelowPercent: 101: expected 0 to 100',
  ])
  const kept = { uid: 'w', generation: 2, spec: { order: [{ clusters: ['paris'] }] } }
  const metadata = { ...wrong.metadata, uid: 'w', generation: 3 }
  const later = world({ policies: [{ ...wrong, metadata, status: { conditions: observedAt(2), inForce: kept } }] })
  t.match(lines(later)[2], /^paris .* 100 % .* TrafficPolicy wrong$/, 'but for the version that its status keeps')
  t.match(invalidPolicies(later), [/^TrafficPolicy shop\/wrong is not valid, and its generation 2 counts: spec/])
  t.same(invalidPolicies(world({ policies: [CANARY], clusterPolicies: [DEFAULT] })), [])
})

t.test('nothing is counted for a service that no rule concerns', async (t) => {
  const service = { ...imported('web'), status: { clusters: [{ cluster: 'oslo' }] } }
  const planned = (drained: string | undefined, ofService: boolean): [hasShares: boolean, reads: number] => {
    let reads = 0
    const plain = slice('web', 'oslo', 2, 0, ofService)
    const read = {
      ...plain,
      get endpoints() {
        reads += 1
        return plain.endpoints ?? []
      },
    }
    const shares = sharesOfService(service, [read], {
      ...{ self: 'milano', clusterset: 'demo', reachable: undefined },
      clusters: new Map(CLUSTERS.map((one) => [one.spec.id, withDrain(one, one.spec.id === drained)])),
      policies: new TrafficPolicies({ policies: [], clusterPolicies: [] }),
      withoutEgress: new Set(),
    })
    return [shares !== undefined, reads]
  }
  t.strictSame(planned(undefined, false), [false, 0], 'plain')
  t.strictSame(planned('paris', false), [false, 1], 'a cluster is drained, and does not export it')
  t.strictSame(planned('oslo', false), [true, 1], 'its cluster is drained')
  t.strictSame(planned(undefined, true), [true, 1], 'the service is drained there')
})

t.test('ports have rows of their own where their shares differ, and what egress rules shut has none', async (t) => {
  const http = { name: 'http', protocol: 'TCP', port: 80 } as const
  const unnamed = { protocol: 'UDP', port: 53 } as const
  const service = imported('web')
  const imports = [{ ...service, spec: { ...service.spec, ports: [http, unnamed] } }]
  const of = (cluster: string, ports: NonNullable<EndpointSlice['ports']>) => ({ ...slice('web', cluster, 1), ports })
  const slices = [of('milano', [http]), of('oslo', [http, unnamed]), of('paris', [http, unnamed])]
  const policies = [policy('near', { order: [{ local: {} }, { any: {} }] })]
  const shown = (change: Partial<TrafficObjects>): string[] =>
    trafficRows(world({ imports, slices, policies, ...change }), () => true).map(
      (row) => `${serviceText(row)} ${row.cluster} ${shareText(row.share)} ${row.reason}`,
    )
  t.same(shown({}), [
    'shop/web milano 100 % ByReadyEndpoints',
    'shop/web oslo 0 % TierIdle',
    'shop/web paris 0 % TierIdle',
    'shop/web:UDP 53 oslo 50 % Spilled',
    'shop/web:UDP 53 paris 50 % Spilled',
  ])
  const egress = [{ clusters: ['paris'] }]
  const accessPolicies = [{ ...clusterAccessPolicy('allow'), spec: { default: 'allow' as const, egress } }]
  t.same(shown({ policies: [], slices: slices.map((one) => ({ ...one, ports: [http, unnamed] })), accessPolicies }), [
    'shop/web milano 50 % ByReadyEndpoints',
    'shop/web oslo 0 % CallsNotAllowed',
    'shop/web paris 50 % ByReadyEndpoints',
  ])
})

function withDrain(object: Cluster, drained: boolean): Cluster {
  return { ...object, spec: { ...object.spec, drained } }
}

t.test('any world: shares are whole, and those that balancing follows', async () => {
  const counts = fc.array(fc.tuple(fc.nat(4), fc.nat(4), fc.boolean()), { minLength: 3, maxLength: 3 })
  const arbitrary = fc.record({ counts, up: fc.subarray(['oslo', 'paris']), hasPolicy: fc.boolean() })
  fc.assert(
    fc.property(arbitrary, ({ counts, up, hasPolicy }) => {
      const ids = CLUSTERS.map(({ spec }) => spec.id)
      const slices = counts.map(([ready, waiting, drained], i) => slice('web', ids[i] ?? '', ready, waiting, drained))
      const policies = hasPolicy ? [CANARY] : []
      const rows = trafficRows(world({ slices, policies, gateways: [gateway(...up)] }), (_, name) => name === 'web')
      const sum = rows.reduce((all, { share }) => all + share, 0)
      const shares = sharesOfService(imported('web'), slices, {
        ...{ self: 'milano', clusterset: 'demo', reachable: new Set(['milano', ...up]) },
        clusters: new Map(CLUSTERS.map((one) => [one.spec.id, one])),
        policies: new TrafficPolicies({ policies, clusterPolicies: [] }),
        withoutEgress: new Set(),
      })
      const isSame = shares === undefined || shares.shares.every(({ share }, i) => rows[i]?.share === share)
      return rows.length === 3 && (sum === 10_000 || sum === 0) && isSame
    }),
  )
})

async function site(t: Test, more: readonly KubeObject[] = []): Promise<SiteFolder> {
  const folder = new SiteFolder(t)
  const { membership, clusters, imports, slices, gateways } = world()
  const init = { objects: folder.path('objects'), state: folder.path('state') }
  const api = new FileApi({ clock: new SystemClock(), logger: new CapturingLogger() }, init)
  for (const object of [membership, ...clusters, ...imports, ...slices, ...gateways]) {
    await api.apply(object)
    if ('status' in object) await api.applyStatus(object)
  }
  await api.close()
  write(folder, more)
  return folder
}

function write(folder: SiteFolder, objects: readonly object[]): void {
  folder.write('objects/own.yaml', objects.map((one) => JSON.stringify(one)).join('\n---\n'))
}

t.test('show traffic: table, JSON, one service, and bad names', async (t) => {
  const { file } = await site(t, [CANARY])
  const show = (...words: string[]) => runCli(['show', 'traffic', ...words, '--site', file])
  const { code, stdout, stderr } = await show('shop/web')
  t.same([code, stderr], [0, ''])
  t.equal(
    `\n${stdout}`,
    `
SERVICE   CLUSTER  TIER  READY  WEIGHT  SHARE  REASON    POLICY                MESSAGE
shop/web  milano      0    2/2    8900   89 %  ByWeight  TrafficPolicy canary  weight 8900; 2 of 2 ready
shop/web  oslo        0    1/2    1000   10 %  ByWeight  TrafficPolicy canary  weight 1000; 1 of 2 ready
shop/web  paris       0    3/3     100    1 %  ByWeight  TrafficPolicy canary  weight 100; 3 of 3 ready
`,
  )
  const rows: readonly [words: string[], code: number, services: string, stderr?: RegExp][] = [
    [[], 0, 'shop/db shop/web'],
    [['web'], 0, 'shop/web'],
    [['web', '-n', 'shop'], 0, 'shop/web'],
    [['shop/web', '-n', 'shop'], 0, 'shop/web'],
    [['-n', 'other'], 0, '', /^none\n/],
    [['shop/web', '-n', 'other'], 2, '', /shop\/web: expected namespace other, as in --namespace/],
    [['none'], 2, '', /service none: no cluster exports it/],
    [['other/web'], 2, '', /service other\/web: no cluster exports it/],
    [['web', '-n', 'other'], 2, '', /service other\/web: no cluster exports it/],
    [['a/b/c'], 2, '', /service "a\/b\/c": expected NAMESPACE\/NAME or NAME/],
    [['shop/'], 2, '', /service "shop\/": expected/],
    [['web.shop'], 2, '', /service "web.shop": expected/],
  ]
  for (const [words, code, services, stderr = /^$/] of rows) {
    const result = await show(...words)
    const found = result.stdout.split('\n').slice(1, -1)
    const named = [...new Set(found.map((line) => line.split(' ')[0]))]
    t.same([result.code, named.join(' ')], [code, services], words.join(' '))
    t.match(result.stderr, stderr, words.join(' '))
  }
  const json = await show('web', '-o', 'json')
  t.match(JSON.parse(json.stdout), {
    items: [
      {
        ...{ namespace: 'shop', name: 'web', cluster: 'milano', tier: 0, ready: 2, total: 2, weight: 8900 },
        ...{ share: 8900, reason: 'ByWeight', policy: { kind: 'TrafficPolicy', name: 'canary' } },
      },
      { cluster: 'oslo', share: 1000 },
      { cluster: 'paris', share: 100 },
    ],
  })
  const before = await runCli(['show', 'traffic', '--site', new SiteFolder(t).file])
  t.match(before, { code: 1, stderr: /has not joined a clusterset/ })
})

t.test('show traffic --watch prints again what has changed, until it is interrupted', async (t) => {
  const folder = await site(t)
  const started = startCli(['show', 'traffic', 'web', '--watch', '-o', 'json', '--site', folder.file])
  const shares = (): number[][] =>
    started
      .answers()
      .split('\n')
      .slice(0, -1)
      .map((line) => (JSON.parse(line) as { items: { share: number }[] }).items.map(({ share }) => share))
  await eventually(() => shares().length === 1)
  write(folder, [CANARY])
  await eventually(() => shares().length === 2)
  t.same(shares(), [
    [3333, 1667, 5000],
    [8900, 1000, 100],
  ])
  started.stop()
  t.equal((await started.result).code, 0)
})
