import fc from 'fast-check'
import t from 'tap'
import { recordProblem } from '../../../agent/import/check-record.ts'
import { newImportMemory, planImports } from '../../../agent/import/plan-imports.ts'
import { admitRecord } from '../../../broker/records/admission.ts'
import type { ClusterId } from '../../../model/ids.ts'
import type { OpenConnections } from '../../../model/member-status.ts'
import type { RecordBody, ServiceExportBody, StoredRecord } from '../../../model/records.ts'
import {
  FLAT,
  IP,
  MILANO,
  OWN,
  PUBLIC_KEY,
  cluster,
  exported,
  plan,
  record,
  show,
  sliceOf,
  world,
} from '../import-fixtures.ts'

t.test('bad records are left out, with a reason, and only they', async (t) => {
  const bad = (change: Partial<StoredRecord['key']>, body: RecordBody): StoredRecord => {
    const good = record('milano', 'web', body)
    return { ...good, key: { ...good.key, ...change } }
  }
  const body = exported('milano').body as ServiceExportBody
  const endpoint = { cluster: 'milano', node: 'gw', lane: 0, publicKey: PUBLIC_KEY, candidates: [], capabilities: [] }
  const rows: [StoredRecord, reason: string][] = [
    [bad({ namespace: 'kube-system' }, body), 'namespace "kube-system" is a system namespace'],
    [bad({ namespace: 'openshift-dns' }, body), 'namespace "openshift-dns" is a system namespace'],
    [bad({ namespace: '../..' }, body), 'namespace "../.." is not a DNS label'],
    [bad({ name: 'Web' }, body), 'service name "Web" is not a DNS label'],
    [bad({ cluster: 'a.b' as ClusterId }, body), 'cluster id "a.b" is not a DNS label'],
    [bad({}, { ...body, ports: [{ name: 'a b', protocol: 'TCP', port: 80 }] }), 'port "a b" 80 is malformed'],
    [bad({}, { ...body, ports: [{ protocol: 'TCP', port: 70000 }] }), 'port "" 70000 is malformed'],
    [bad({}, { ...body, exportedLabels: { 'a b': 'c' } }), 'label "a b=c" is malformed'],
    [bad({}, { ...body, exportedLabels: { a: 'c d' } }), 'label "a=c d" is malformed'],
    [bad({}, { ...body, exportedAnnotations: { 'a//b': '' } }), 'annotation "a//b" is malformed'],
    [bad({}, { ...body, internalTrafficPolicy: 'x' }), 'internalTrafficPolicy "x"'],
    [
      bad({ namespace: '' }, { kind: 'Endpoint', spec: { ...endpoint, cluster: 'paris' } }),
      'the record claims to belong to cluster "paris"',
    ],
    [
      bad({ namespace: '' }, { kind: 'Endpoint', spec: { ...endpoint, node: '../x' } }),
      'node "../x" is not a DNS name',
    ],
    [bad({ namespace: '' }, { kind: 'Endpoint', spec: { ...endpoint, lane: 256 } }), 'lane 256: expected 0 to 255'],
    [cluster('bad', ['10.42.0.0/16'], []), "10.42.0.0/16 overlaps this cluster's own pod CIDRs"],
    [cluster('bad', ['127.0.0.0/8'], []), '127.0.0.0/8 is not a usable network'],
    [cluster('bad', ['64.0.0.0/2'], []), '64.0.0.0/2 is not a usable network'],
    [cluster('bad', ['10.43.128.0/17'], []), "10.43.128.0/17 overlaps this cluster's own service CIDRs"],
    [
      bad({ name: 'bad', namespace: '' }, { kind: 'Cluster', spec: { ...OWN, id: 'paris' } }),
      'the record claims to be cluster "paris"',
    ],
    [
      bad({}, { kind: 'ClusterSetIP', ips: ['245.0.0.9'] }),
      'a ClusterSetIP record of cluster "milano": only the broker assigns clusterset IPs',
    ],
    [
      cluster('bad', ['10.1.0.0/16'], ['244.9.0.0/24']),
      'globalCIDRs[0] "244.9.0.0/24": expected the size and family of podCIDRs[0], 10.1.0.0/16',
    ],
    [cluster('bad', ['x'], []), 'podCIDRs "x": expected a CIDR such as 10.42.0.0/16'],
  ]
  const good = [MILANO, FLAT, IP, exported('flat'), sliceOf('flat', '10.99.0.1')]
  for (const [one, reason] of rows) {
    const found = plan([one, ...good])
    t.same(
      found.dropped.map((dropped) => dropped.message),
      [reason],
    )
    t.same(
      show(found),
      [
        'Cluster flat',
        'Cluster milano',
        'web<-flat http:8080 10.99.0.1(10-99-0-1)',
        'shop/web ClusterSetIP 245.0.0.7 http:80 from flat Ready',
      ],
      reason,
    )
  }
  t.same(
    planImports(
      world([bad({ namespace: 'kube-system' }, body)]),
      newImportMemory({ allowedNamespaces: ['kube-system'], excludedNamespaces: ['kube-system'] }),
    ).dropped,
    [],
    'allowed',
  )
  const excluding = newImportMemory({ allowedNamespaces: [], excludedNamespaces: ['bank'] })
  t.match(
    planImports(world([bad({ namespace: 'bank' }, body)]), excluding).dropped,
    [{ reason: 'NamespaceNotAllowed', message: 'namespace "bank" is among the excludedNamespaces of this cluster' }],
    'excluded',
  )
})

t.test('what the broker admits no importer leaves out: else the owner would believe it exported', async (t) => {
  const context = {
    cluster: 'milano',
    podCIDRs: [],
    allowedNamespaces: [],
    ranges: { globalRange: '244.0.0.0/8', clustersetIpRange: '245.0.0.0/16' },
    publicKeyOwner: () => undefined,
  }
  const bad = fc.constantFrom('', 'a b', '-', 'a/b/c', 'x'.repeat(64))
  const text = fc.oneof({ arbitrary: fc.constantFrom('a', 'example.org/x', 'A'), weight: 8 }, bad, fc.string())
  const good = exported('milano').body as ServiceExportBody
  let admitted = 0
  fc.assert(
    fc.property(
      fc.constantFrom('shop', 'web', 'kube-x', 'openshift'),
      fc.record(
        {
          internalTrafficPolicy: fc.constantFrom('Cluster', 'Local', 'x'),
          trafficDistribution: text,
          exportedLabels: fc.dictionary(text, text, { maxKeys: 2 }),
          exportedAnnotations: fc.dictionary(text, text, { maxKeys: 2 }),
          ports: fc.array(
            fc.record({
              name: fc.constantFrom('a', 'b', 'A'),
              protocol: fc.constant('TCP' as const),
              port: fc.constantFrom(0, 1, 80, 65_535, 65_536),
              appProtocol: text,
            }),
            { maxLength: 2 },
          ),
        },
        { requiredKeys: [] },
      ),
      (namespace, change) => {
        const body = { ...good, ...change }
        if (admitRecord({ namespace, name: 'web', body }, context) !== undefined) return true
        admitted += 1
        const one = record('milano', 'web', body)
        return recordProblem({ ...one, key: { ...one.key, namespace } }, {}) === undefined
      },
    ),
    { numRuns: 2000 },
  )
  t.ok(admitted > 50, `${admitted} were admitted`)
})

t.test('ids that are reserved: left out, unless the cluster is here from before', async (t) => {
  const record = (cluster: string): StoredRecord => ({
    key: { cluster: cluster as ClusterId, kind: 'Endpoint', namespace: '', name: 'e' },
    revision: 1,
    createdAtMs: 0,
    body: {
      kind: 'Endpoint',
      spec: { cluster, node: 'gw', lane: 0, publicKey: PUBLIC_KEY, candidates: [], capabilities: [] },
    },
  })
  for (const id of ['broker', 'constructor', 'kube-system', 'sealane-x']) {
    t.strictSame(recordProblem(record(id), {}), {
      reason: 'ClusterIdReserved',
      message: `cluster id "${id}" is reserved`,
    })
    t.equal(
      recordProblem(record(id), {}, (known) => known === id),
      undefined,
    )
  }
  t.equal(recordProblem(record('milano'), {}), undefined)
})

t.test('how many connections a member says that it has open', (t) => {
  const status = (openConnections: unknown): StoredRecord => ({
    key: { cluster: 'milano' as ClusterId, kind: 'MemberStatus', namespace: '', name: 'milano' },
    revision: 1,
    createdAtMs: 1,
    body: { kind: 'MemberStatus', notImported: [], leftOut: 0, openConnections: openConnections as OpenConnections },
  })
  const rows: [reported: unknown, want: RegExp | undefined][] = [
    [{ count: 0, atLeast: false }, undefined],
    [{ count: 2 ** 31 - 1, atLeast: true }, undefined],
    [{ count: 2 ** 31, atLeast: false }, /^openConnections count 2147483648: expected/],
    [{ count: -1, atLeast: false }, /^openConnections count -1: expected/],
    [{ count: 1.5, atLeast: false }, /^openConnections count 1\.5: expected/],
    [{ count: 1 }, /^openConnections atLeast: expected/],
  ]
  for (const [reported, want] of rows) {
    const found = recordProblem(status(reported), {}, () => true)
    if (want === undefined) t.equal(found, undefined, JSON.stringify(reported))
    else t.match(found, { reason: 'InvalidValue', message: want }, JSON.stringify(reported))
  }
  t.end()
})
