import fc from 'fast-check'
import t from 'tap'
import { parseObjects } from '../../../../kubeapi/files/user/parse-objects.ts'
import { unreadPolicies } from '../../../../kubeapi/files/user/unread-policies.ts'
import { formatProblem } from '../../../../kubeapi/files/problem-board.ts'
import { formatYaml, parseYaml } from '../../../../kubeapi/yaml.ts'
import { serviceYaml } from '../file-site.ts'

/** The content of a file as `Kind namespace/name@line`, or its problems. */
function read(text: string): string[] {
  const result = parseObjects('x.yaml', text)
  if ('problems' in result) return result.problems.map(formatProblem)
  const objects = result.file.objects.map(({ kind, key, line }) => `${kind} ${key}@${line}`)
  return result.file.ignored === 0 ? objects : [...objects, `ignored ${result.file.ignored}`]
}

function doc(kind: string, rest: string, apiVersion = 'v1'): string {
  return `apiVersion: ${apiVersion}\nkind: ${kind}\nmetadata: {name: a, namespace: shop}\n${rest}`
}

const SLICE = 'discovery.k8s.io/v1'
const MCS = 'multicluster.x-k8s.io'

const SEALANE = 'apiVersion: sealane.io/v1alpha1\n'

t.test('what is taken', async (t) => {
  const rows = [
    { text: '', want: [] },
    { text: '# nothing\n---\n---\n', want: [] },
    { text: '\uFEFF'.slice(1) + serviceYaml('web'), want: ['Service shop/web@1'] },
    { text: 'apiVersion: v1\nkind: Service\nmetadata: {name: web}\n', want: ['Service default/web@1'] },
    { text: 'apiVersion: v1\nkind: Node\nmetadata: {name: gw, namespace: x}\n', want: ['Node _/gw@1'] },
    { text: `${serviceYaml('a')}---\n${serviceYaml('b')}`, want: ['Service shop/a@1', 'Service shop/b@10'] },
    { text: doc('ServiceExport', '', `${MCS}/v1alpha1`), want: ['ServiceExport shop/a@1'] },
    { text: doc('ServiceExport', '', 'net.gke.io/v1'), want: ['ignored 1'] },
    { text: doc('ServiceImport', 'spec: {}', `${MCS}/v1beta1`), want: ['ignored 1'] },
    { text: doc('Membership', 'spec: {}', 'sealane.io/v1alpha1'), want: ['ignored 1'] },
    { text: '{"apiVersion":"v1","kind":"List","items":[]}', want: [] },
    {
      text: '{\n\t"apiVersion": "v1",\n\t"kind": "ServiceList",\n\t"items": [\n\t\t{"metadata": {"name": "web"}}\n\t]\n}',
      want: ['Service default/web@5'],
    },
    { text: doc('Service', 'spec:\n  ports: null\n  clusterIP: None\nstatus:\n'), want: ['Service shop/a@1'] },
    {
      text: doc('Pod', 'status: {phase: Running, podIP: 10.42.0.7, podIPs: [{ip: 10.42.0.7}]}'),
      want: ['Pod shop/a@1'],
    },
  ]
  for (const { text, want } of rows) t.same(read(text), want, text.slice(0, 60))
})

t.test('fields we do not read are dropped, defaults of the API are filled in, versions are one', async (t) => {
  const result = parseObjects(
    'x',
    doc('Service', 'spec: {selector: {app: web}, ports: [{port: 80, nodePort: 30000}]}\nstatus: {loadBalancer: {}}'),
  )
  t.same('file' in result && result.file.objects[0]?.object, {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name: 'a', namespace: 'shop' },
    spec: { ports: [{ protocol: 'TCP', port: 80 }] },
  })
  const old = parseObjects('x', doc('ServiceExport', 'status: {conditions: []}', `${MCS}/v1alpha1`))
  t.same('file' in old && old.file.objects[0]?.object, {
    apiVersion: `${MCS}/v1beta1`,
    kind: 'ServiceExport',
    metadata: { name: 'a', namespace: 'shop' },
  })
})

t.test('what is refused, with place and reason', async (t) => {
  const rows = [
    {
      text: 'a: [1\nb: 2\n',
      want: 'x.yaml:2:1: Flow sequence in block collection must be sufficiently indented and end with a ]',
    },
    { text: '{"apiVersion": "v1", "kind": "Serv', want: 'x.yaml:1:35: Missing closing "quote' },
    { text: 'a: 1\na: 2\n', want: 'x.yaml:2:1: Map keys must be unique' },
    {
      text: `${SEALANE}kind: AccessPolicy\nmetadata: {name: p, namespace: n}\nspec:\n  from:\n  - clusters:\n    # - paris\n`,
      want: 'x.yaml:6:14: spec.from[0].clusters: expected a value, got nothing',
    },
    {
      text: `${SEALANE}kind: ClusterAccessPolicy\nmetadata: {name: default}\nspec:\n  default: allow\n  egress:\n`,
      want: 'x.yaml:6:10: spec.egress: expected a value, got nothing',
    },
    {
      text: `${SEALANE}kind: TrafficPolicy\nmetadata: {name: p, namespace: n}\nspec:\n  order:\n  - local:\n`,
      want: 'x.yaml:6:11: spec.order[0].local: expected a value, got nothing',
    },
    {
      text: `${SEALANE}kind: TrafficPolicy\nmetadata: {name: p, namespace: n}\nspec:\n  order:\n  - {local: {}, any: {}}\n`,
      want: 'x.yaml:6:5: spec.order[0]: expected exactly one of local, clusters, selector, any, got {"local":{},"any":{}}',
    },
    {
      text: `${SEALANE}kind: ClusterTrafficPolicy\nmetadata: {name: default}\nspec:\n  order: [{any: {}, weights: {a: 10001}}]\n`,
      want: 'x.yaml:5:34: spec.order[0].weights.a: expected 0 to 10000, got 10001',
    },
    { text: 'just words\n', want: 'x.yaml:1:1: expected a Kubernetes object with apiVersion, kind and metadata' },
    { text: 'kind: Service\n', want: 'x.yaml:1:1: apiVersion: expected text, got nothing' },
    { text: 'apiVersion: v1\nkind: 5\n', want: 'x.yaml:2:7: kind: expected text, got something else' },
    { text: 'apiVersion: v1\nkind: Service\n', want: 'x.yaml:1:1: metadata: expected a map, got nothing' },
    {
      text: doc('Service', 'spec: {ports: [{port: abc}]}'),
      want: 'x.yaml:4:23: spec.ports[0].port: expected 1 to 65535, got "abc"',
    },
    {
      text: doc('Service', 'spec:\n  ports:\n  - port: 0'),
      want: 'x.yaml:6:11: spec.ports[0].port: expected 1 to 65535, got 0',
    },
    { text: doc('Service', 'spec: {ports: {}}'), want: 'x.yaml:4:15: spec.ports: expected a list, got {}' },
    {
      text: doc('Service', 'spec: {ports: [{port: 1, protocol: tcp}]}'),
      want: 'x.yaml:4:36: spec.ports[0].protocol: expected one of TCP, UDP, SCTP, got "tcp"',
    },
    {
      text: doc('Service', 'spec: {ports: [{port: 1, name: a}, {port: 2}]}'),
      want: 'x.yaml:4:36: spec.ports[1].name: expected a name of its own, as there are several ports, got nothing',
    },
    {
      text: doc('Service', 'spec: {ports: [{port: 1, name: a}, {port: 1, name: b}]}'),
      want: 'x.yaml:4:43: spec.ports[1].port: expected each port once per protocol, got 1',
    },
    {
      text: doc('Service', 'spec: {clusterIP: 10.43.0.300}'),
      want: 'x.yaml:4:19: spec.clusterIP: expected None or an address such as 10.43.0.7, got "10.43.0.300"',
    },
    {
      text: 'apiVersion: v1\nkind: Service\nmetadata: {name: Web_1}\n',
      want: 'x.yaml:3:18: metadata.name: expected an RFC 1123 label: 1 to 63 of a-z, 0-9 and -, got "Web_1"',
    },
    {
      text: 'apiVersion: v1\nkind: Pod\nmetadata: {name: a, labels: {v: 1}}\n',
      want: 'x.yaml:3:33: metadata.labels.v: expected text, got 1',
    },
    {
      text: doc('Node', 'status: {addresses: [{type: InternalIP, address: gw}]}'),
      want: 'x.yaml:4:50: status.addresses[0].address: expected an IPv4 or IPv6 address such as 10.42.0.7, got "gw"',
    },
    {
      text: doc('Node', 'spec: {podCIDR: 10.42.0.1/24}'),
      want: 'x.yaml:4:17: spec.podCIDR: expected a CIDR without host bits such as 10.42.0.0/16, got "10.42.0.1/24"',
    },
    {
      text: doc('EndpointSlice', 'addressType: IPv4\nendpoints: [{addresses: [fd00::1]}]', SLICE),
      want: 'x.yaml:5:26: endpoints[0].addresses[0]: expected an IPv4 address, got "fd00::1"',
    },
    {
      text: doc('EndpointSlice', 'addressType: IPv4\nendpoints: [{addresses: []}]', SLICE),
      want: 'x.yaml:5:25: endpoints[0].addresses: expected 1 to 100 addresses, got []',
    },
    {
      text: doc('EndpointSlice', '', SLICE),
      want: 'x.yaml:1:1: addressType: expected one of IPv4, IPv6, FQDN, got nothing',
    },
    {
      text: `${serviceYaml('a')}---\n${serviceYaml('a')}`,
      want: 'x.yaml:10:1: Service shop/a occurs twice in this file, first at line 1',
    },
  ]
  for (const { text, want } of rows) t.equal(read(text)[0], want)
})

t.test('all problems of a file are told, but not without end', async (t) => {
  t.equal(read(doc('Service', 'spec: {clusterIP: x, ports: [{port: 0}, {port: -1}]}')).length, 3)
  const many = doc('Service', `spec: {ports: [${'{port: 0}, '.repeat(500)}]}`)
  t.equal(read(many).length, 20)
  t.equal(read(`${serviceYaml('web', 0)}---\n`.repeat(100)).length, 20)
})

t.test('an alias bomb is refused and not spread out', async (t) => {
  const levels = Array.from(
    { length: 12 },
    (_, i) => `l${i}: &l${i} [${i === 0 ? 'x' : `${`*l${i - 1}, `.repeat(9)}*l${i - 1}`}]`,
  )
  const text = `${levels.join('\n')}\n`
  t.same(read(text), ['x.yaml:1:1: Excessive alias count indicates a resource exhaustion attack'])
})

t.test('what has no end, or nearly none, is refused with a reason', async (t) => {
  const texts: Record<string, string> = {
    'a flow list': '['.repeat(100_000),
    'a flow map': '{a: '.repeat(20_000),
    'a block list': '- '.repeat(20_000),
    'an alias of itself': 'kind: &a [*a]',
  }
  for (const [say, text] of Object.entries(texts)) {
    const found = read(text)
    // The depth that is too deep depends on the machine's stack.
    const [first = ''] = found
    t.equal(first.replace(/^x\.yaml:1:\d+: /, ''), 'nested too deeply, or an alias that contains itself', say)
    t.ok(found.length <= 20, say)
  }
})

t.test('no text makes the parser throw', async () => {
  const seed = `${serviceYaml('web')}---\n${doc('EndpointSlice', 'addressType: IPv4\nendpoints: [{addresses: [10.0.0.1]}]', SLICE)}`
  const mutated = fc
    .array(fc.tuple(fc.nat(seed.length), fc.nat(5), fc.string({ maxLength: 4 })), { maxLength: 5 })
    .map((edits) => edits.reduce((text, [at, cut, put]) => text.slice(0, at) + put + text.slice(at + cut), seed))
  fc.assert(
    fc.property(fc.oneof(fc.string(), mutated), (text) => Array.isArray(read(text))),
    { numRuns: 2000 },
  )
})

t.test('what formatYaml writes is read back the same', async (t) => {
  fc.assert(
    fc.property(fc.dictionary(fc.stringMatching(/^[a-z]{1,8}$/), fc.string()), (labels) => {
      const object = { apiVersion: 'v1', kind: 'Pod', metadata: { name: 'a', namespace: 'shop', labels } }
      const result = parseObjects('x', formatYaml(object))
      return (
        'file' in result && JSON.stringify(result.file.objects[0]?.object.metadata.labels) === JSON.stringify(labels)
      )
    }),
  )
  t.equal(formatYaml({ a: ['x', { b: 1 }], c: 'yes: no' }), 'a:\n  - x\n  - b: 1\nc: "yes: no"\n')
  t.equal(formatYaml({ a: 'on', b: '1:20', c: '0b1' }), 'a: "on"\nb: "1:20"\nc: "0b1"\n', 'texts in YAML 1.1 too')
})

t.test('a key that comes twice is found', async (t) => {
  t.same(read(`${doc('ConfigMap', 'data:\n')}  k0: v\n  k1: v\n  k2: v\n  k1: w\n`), [
    'x.yaml:8:3: Map keys must be unique',
  ])
  t.same(read('a: {b: 1, c: 2, b: 3}\n'), ['x.yaml:1:17: Map keys must be unique'])
  t.throws(() => parseYaml('a: 1\na: 2\n'), /unique/)
})

t.test('which policies an invalid file may hold', async (t) => {
  const head = (kind: string, more = '') => `apiVersion: sealane.io/v1alpha1\nkind: ${kind}\n${more}`
  const shop = 'metadata: { name: a, namespace: shop }\n'
  const broken = 'spec:\n  from: [\n'
  const rows: readonly [title: string, text: string, want: readonly [string[] | 'any', string] | undefined][] = [
    ['nothing', '', undefined],
    ['a Service', 'apiVersion: v1\nkind: Service\nmetadata: { name: a }\nspec: { ports: 1 }\n', undefined],
    ['a broken Service', 'apiVersion: v1\nkind: Service\nspec: [\n', undefined],
    ['a wrong field', head('AccessPolicy', `${shop}spec: { form: [] }\n`), [['shop'], 'none']],
    ['a field without a value', head('AccessPolicy', `${shop}spec: { from: [{ clusters: }] }\n`), [['shop'], 'none']],
    ['no namespace', head('AccessPolicy', 'metadata: { name: a }\nspec: {}\n'), [['default'], 'none']],
    ['no metadata', head('AccessPolicy'), ['any', 'none']],
    ['a namespace that is none', head('AccessPolicy', 'metadata: { namespace: [shop] }\n'), ['any', 'none']],
    ['no YAML', head('AccessPolicy', `${shop}${broken}`), ['any', 'none']],
    ['no YAML, as JSON', '{"kind": "AccessPolicy", "metadata": {"namespace": "shop"}', ['any', 'none']],
    ['no YAML, with a comment', `# kind: AccessPolicy\nkind: Service # kind: AccessPolicy\n${broken}`, undefined],
    ['of another project', 'apiVersion: example.com/v1\nkind: AccessPolicy\nmetadata: { name: a }\n', undefined],
    ['no apiVersion', `kind: AccessPolicy\n${shop}`, [['shop'], 'none']],
    ['the default', head('ClusterAccessPolicy', 'spec: { default: denied }\n'), [[], 'default']],
    ['egress', head('ClusterAccessPolicy', 'spec: { default: deny, egress: 1 }\n'), [[], 'egress']],
    ['the default, no YAML', head('ClusterAccessPolicy', broken), [[], 'default']],
    ['egress, no YAML', head('ClusterAccessPolicy', 'spec:\n  egress: [\n'), [[], 'egress']],
    [
      'a good one beside a bad object',
      `${head('AccessPolicy', `${shop}spec: { from: [] }`)}\n---\n7\n`,
      [['shop'], 'none'],
    ],
    ['a list', `apiVersion: v1\nkind: List\nitems: [{ kind: AccessPolicy, ${shop.trim()} }, 7]\n`, [['shop'], 'none']],
    ['a typed list', `${head('AccessPolicyList')}items: [{ ${shop.trim()} }]\n`, [['shop'], 'none']],
  ]
  for (const [title, text, want] of rows) {
    const found = unreadPolicies(text)
    const namespaces = found?.namespaces === undefined ? 'any' : [...found.namespaces]
    t.strictSame(found && [namespaces, found.ofCluster], want, title)
  }
  const part = fc.constantFrom(
    'kind: A\n',
    '{',
    '[',
    'metadata:\n',
    '  namespace: shop\n',
    '---\n',
    '- ',
    '&a *a\n',
    '\t',
  )
  fc.assert(
    fc.property(fc.array(part, { maxLength: 8 }), (parts) => {
      const text = `kind: AccessPolicy\n${parts.join('')}`
      return unreadPolicies(text) !== undefined
    }),
    { numRuns: 200 },
  )
  fc.assert(fc.property(fc.string(), (text) => unreadPolicies(text) === undefined))
})
