/** `sealane show access` and `sealane access check`: who may call which services, by which rule, and how it is said. */
import t, { type Test } from 'tap'
import {
  type CheckObjects,
  accessRows,
  causeText,
  checkAccess,
  offeredText,
} from '../../cli/status/access/plan-access.ts'
import { parseCalled, parseCaller } from '../../cli/status/access/parse-ends.ts'
import { FileApi } from '../../kubeapi/files/file-api.ts'
import { ANNOTATION_CALLERS } from '../../model/access/callers.ts'
import type { AccessPolicy, ClusterAccessPolicy, KubeObject, LabelSelector, Membership } from '../../model/objects.ts'
import type { NamespaceChoice } from '../../model/records.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { CapturingLogger } from '../../runtime/logging/capturing-logger.ts'
import { clusterAccessPolicy } from '../support/objects/access-objects.ts'
import { clusterObject, membershipObject } from '../support/objects/cluster-objects.ts'
import { exportObject, importObject, serviceObject, sliceObject } from '../support/objects/service-objects.ts'
import { runCli } from './run-cli.ts'
import { SiteFolder } from './site-folder.ts'

function policy(name: string, spec: AccessPolicy['spec']): AccessPolicy {
  return { apiVersion: 'sealane.io/v1alpha1', kind: 'AccessPolicy', metadata: { name, namespace: 'shop' }, spec }
}

const target = (name: string) => ({ targetRefs: [{ name }] })

const POLICIES = [
  policy('api', {
    ...target('api'),
    from: [{ clusters: ['paris'], namespaces: ['shop', 'bank'] }, { clusters: ['oslo'] }],
  }),
  policy('db', { ...target('db'), from: [] }),
  policy('mail', {
    ...target('mail'),
    from: [{ clusters: ['paris'], namespaceSelector: { matchLabels: { team: 'x' } } }],
  }),
]

/** milano exports web, api, db and mail of namespace shop, and imports far from paris. */
function world(spec: Partial<Membership['spec']> = {}, change: Partial<CheckObjects> = {}): CheckObjects {
  return {
    membership: membershipObject({ exposure: 'exports', ...spec }),
    clusters: [
      clusterObject(
        { id: 'milano', podCIDRs: ['10.42.0.0/16', 'fd00:42::/64'], globalCIDRs: ['244.1.0.0/16'] },
        { status: { importedBy: [{ namespace: 'shop', name: 'api', clusters: ['oslo'] }] } },
      ),
      clusterObject({ id: 'paris', index: 2, podCIDRs: ['10.50.0.0/16'] }),
      clusterObject({ id: 'oslo', index: 3, podCIDRs: ['10.60.0.0/16'] }),
    ],
    exports: ['web', 'api', 'db', 'mail'].map((name) => exportObject({ name })),
    imports: [{ ...importObject({ name: 'far' }), status: { clusters: [{ cluster: 'paris' }] } }],
    policies: POLICIES,
    clusterPolicies: [],
    services: ['web', 'api'].map((name) => serviceObject({ name }, { ports: [{ port: 80, protocol: 'TCP' }] })),
    slices: ['web', 'api'].map((name, i) =>
      sliceObject(
        { name: `${name}-1`, labels: { 'kubernetes.io/service-name': name } },
        { endpoints: [{ addresses: [`10.42.0.${i + 7}`] }], ports: [{ port: 8080, protocol: 'TCP' }] },
      ),
    ),
    ...change,
  }
}

/** The slice of far names the namespaces that may call. */
function limited(choice: NamespaceChoice): CheckObjects {
  const labels = {
    'multicluster.kubernetes.io/service-name': 'far',
    'multicluster.kubernetes.io/source-cluster': 'paris',
  }
  const annotations = { [ANNOTATION_CALLERS]: JSON.stringify(choice) }
  return world({}, { slices: [sliceObject({ name: 'far-paris', labels, annotations })] })
}

function refusedByBroker(name: string): CheckObjects {
  const condition = { type: 'Ready', status: 'False', reason: 'NamespaceNotAllowed', message: '' } as const
  const status = { conditions: [{ ...condition, lastTransitionTime: '2026-01-01T00:00:00Z' }] }
  return world({}, { exports: [{ ...exportObject({ name }), status }] })
}

function egress(rules: NonNullable<ClusterAccessPolicy['spec']['egress']>): CheckObjects {
  const policy = clusterAccessPolicy('allow')
  return world({}, { clusterPolicies: [{ ...policy, spec: { ...policy.spec, egress: rules } }] })
}

t.test('rows: to whom each service is offered, and the rule', async (t) => {
  const of = (objects: CheckObjects) =>
    accessRows(objects, () => true).map((row) => [row.name, offeredText(row), causeText(row.cause)].join('; '))
  const byPolicies = [
    'api; oslo, paris/(bank, shop); AccessPolicy api',
    'db; nobody; AccessPolicy db',
    'mail; paris/(by labels); AccessPolicy mail',
  ]
  t.same(of(world()), [...byPolicies, 'web; all members; default of the clusterset: allow'])
  const early = 'web; all members; default of the clusterset: allow, until the broker states another'
  t.same(of(world({ accessDefault: undefined as never })), [...byPolicies, early])
  const excluded = world({ excludedNamespaces: ['shop'] })
  t.match(of(excluded)[3], 'web; nobody; its namespace is among the excludedNamespaces of this cluster')
  t.match(of(world({ excludedNamespaces: ['shop'], allowedNamespaces: ['shop'] }))[3], 'web; all members; default')
  t.same(of(world({ accessDefault: 'deny' })), [...byPolicies, 'web; nobody; default of the clusterset: deny'])
  t.match(of(world({ exposure: 'nothing' }))[3], 'web; nobody; exposure of this cluster: nothing')
  const many = Array.from({ length: 9 }, (_, i) => policy(`p${i}`, { from: [{ clusters: [`c${i}`] }] }))
  t.match(
    of(world({}, { policies: many }))[3],
    'web; c0, c1, c2, c3 and 5 more; AccessPolicy p0, p1, p2, p3 and 5 more',
  )
})

const NOT_PROD = { key: 'env', operator: 'NotIn', values: ['prod'] } as const
const byLabels = (namespaceSelector: LabelSelector): CheckObjects =>
  world({}, { policies: [policy('web', { from: [{ namespaceSelector }] })] })

t.test('one call: allowed or not, and why', async (t) => {
  const rows: readonly [from: string, to: string, answer: string, why: string | RegExp, objects?: CheckObjects][] = [
    ['paris', 'web.shop', 'allowed', 'web.shop is offered to paris (default of the clusterset: allow)'],
    ['paris/bank/pod-1.x', 'web.shop:80', 'allowed', /offered to paris/],
    ['paris', 'web.shop:81', 'refused', 'port 81 is no port of web.shop, which has 80'],
    ['paris', 'db.shop', 'refused', 'db.shop is not offered to paris (AccessPolicy db)'],
    ['oslo/any', 'api.shop', 'allowed', 'api.shop is offered to oslo (AccessPolicy api)'],
    ['paris/shop', 'api.shop', 'allowed', 'api.shop is offered to namespace shop of paris (AccessPolicy api)'],
    ['paris/test', 'api.shop', 'refused', /only to some namespaces of paris: \(bank, shop\)/],
    ['paris', 'api.shop', 'refused', /only to some namespaces of paris: \(bank, shop\)/],
    ['paris/shop', 'mail.shop', 'refused', /by labels/],
    ['paris', 'web.shop', 'refused', /exposure of this cluster: nothing/, world({ exposure: 'nothing' })],
    ['paris', 'web.shop', 'refused', /default of the clusterset: deny/, world({ accessDefault: 'deny' })],
    ['paris', 'web.shop', 'refused', /the broker does not allow exports from namespace shop/, refusedByBroker('web')],
    ['milano', 'web.shop', 'allowed', /a service of this cluster/],
    ['milano', 'far.shop', 'allowed', 'this cluster imports far.shop from paris'],
    ['milano/shop', 'none.shop', 'refused', /does not import none.shop/],
    ['milano/shop', 'far.shop', 'allowed', /imports far.shop/, limited({ names: ['shop'], selectors: [] })],
    ['milano/bank', 'far.shop', 'refused', /paris does not offer it/, limited({ names: ['shop'], selectors: [] })],
    ['milano', 'far.shop', 'refused', /offer it to every namespace/, limited({ names: ['shop'], selectors: [] })],
    ['milano/bank', 'far.shop', 'refused', /namespace bank may not call paris/, egress([{ clusters: ['oslo'] }])],
    ['milano/bank', 'far.shop', 'allowed', /imports far.shop/, egress([{ namespaces: ['bank'] }])],
    ['lima', 'web.shop', 'wrong', 'lima: no member of clusterset demo has this id'],
    ['oslo', 'far.shop', 'wrong', 'far.shop is exported by paris'],
    ['oslo', 'none.shop', 'wrong', 'none.shop: not exported by this cluster'],
    ['oslo', '10.42.0.7:8080', 'allowed', 'web.shop is offered to oslo (default of the clusterset: allow)'],
    ['oslo', '10.42.0.7:9090', 'refused', /port 9090 of 10.42.0.7 belongs to no exported service/],
    ['paris/test', '10.42.0.8:8080', 'refused', /api.shop is offered only to some namespaces/],
    ['paris/shop', 'web.shop', 'refused', /by labels|only to some/, byLabels({ matchExpressions: [NOT_PROD] })],
    ['paris/shop', 'web.shop', 'allowed', /offered to namespace shop of paris/, byLabels({})],
    ['oslo', '10.42.0.99:22', 'refused', /belongs to no exported service/],
    ['oslo', '10.42.0.99:22', 'allowed', /all members may call all pods/, world({ exposure: 'pods' })],
    [
      'paris/test',
      'api.shop',
      'allowed',
      /all members may call all pods .*at their addresses/,
      world({ exposure: 'pods' }),
    ],
    ['oslo', '10.42.0.7:8080', 'refused', /no member may call pods/, world({ exposure: 'nothing' })],
    ['milano', '10.42.0.99:22', 'allowed', /both are in this cluster/],
    ['oslo', '10.50.0.1:80', 'wrong', '10.50.0.1 is an address of paris'],
    ['oslo', '192.0.2.1:80', 'wrong', '192.0.2.1: not in the pod networks of this cluster'],
    ['oslo', '244.1.0.7:80', 'wrong', /not in the pod networks/],
    ['oslo', '[fd00:42::7]:80', 'refused', /port 80 of fd00:42::7/],
  ]
  for (const [from, to, answer, why, objects = world()] of rows) {
    const found = checkAccess(objects, parseCaller(from), parseCalled(to))
    t.match(found, { answer, why }, `${from} to ${to}`)
  }
})

const OBJECTS = world({ clusterset: 'demo' })

async function site(t: Test, more: readonly KubeObject[] = []): Promise<SiteFolder> {
  const folder = new SiteFolder(t)
  const init = { objects: folder.path('objects'), state: folder.path('state') }
  const api = new FileApi({ clock: new SystemClock(), logger: new CapturingLogger() }, init)
  const { membership, clusters, imports } = OBJECTS
  for (const object of [membership, ...clusters, ...imports, ...more]) {
    await api.apply(object)
    if ('status' in object) await api.applyStatus(object)
  }
  await api.close()
  const { exports: exported, policies, services } = OBJECTS
  folder.write(
    'objects/own.yaml',
    [...exported, ...policies, ...services].map((one) => JSON.stringify(one)).join('\n---\n'),
  )
  return folder
}

t.test('show access: tables, one service, one member, and bad names', async (t) => {
  const { file } = await site(t)
  const show = (...words: string[]) => runCli(['show', 'access', ...words, '--site', file])
  const whole = await show()
  t.equal(
    `\n${whole.stdout}`,
    `
NAMESPACE  NAME  OFFERED TO                IMPORTED BY  RULE
shop       api   oslo, paris/(bank, shop)  oslo         AccessPolicy api
shop       db    nobody                    -            AccessPolicy db
shop       mail  paris/(by labels)         -            AccessPolicy mail
shop       web   all members               -            default of the clusterset: allow
`,
  )
  t.same(
    [whole.code, whole.stderr],
    [
      0,
      'this cluster exposes exported services\nelsewhere it may call the services that it imports (1): sealane show services\n',
    ],
  )
  const rows: readonly [words: string[], code: number, names: string, stderr?: RegExp][] = [
    [['web'], 0, 'web'],
    [['web.shop'], 0, 'web'],
    [['oslo'], 0, 'api web'],
    [['paris'], 0, 'api mail web'],
    [['milano'], 0, 'api db mail web'],
    [['-n', 'other'], 0, ''],
    [['none'], 2, '', /none: neither an exported service of this cluster nor the id of a member/],
    [['web.other'], 2, '', /web.other: not exported by this cluster/],
    [['Web_1'], 2, '', /"Web_1": expected a service/],
    [['a.b.c'], 2, '', /"a.b.c": expected a service/],
  ]
  for (const [words, code, names, stderr = /^/] of rows) {
    const result = await show(...words)
    const found = result.stdout
      .split('\n')
      .slice(1, -1)
      .map((line) => line.split(/ +/)[1])
    t.same([result.code, found.join(' ')], [code, names], words.join(' '))
    t.match(result.stderr, stderr)
  }
  const json = await show('-o', 'json')
  t.equal(json.stderr, '')
  t.match(JSON.parse(json.stdout), {
    items: [
      { name: 'api', clusters: ['oslo', 'paris'], importedBy: { clusters: ['oslo'] }, cause: { names: ['api'] } },
      { name: 'db', clusters: [] },
      { name: 'mail' },
      { name: 'web', clusters: undefined, cause: { by: 'clusterset-default', default: 'allow' } },
    ],
  })
})

t.test('access check: exit codes, and bad words', async (t) => {
  const { file } = await site(t)
  const rows: readonly [from: string, to: string, code: number, text: RegExp][] = [
    ['paris', 'web.shop:80', 0, /^allowed: web.shop is offered to paris \(default of the clusterset: allow\)\n$/],
    ['paris', 'db.shop', 1, /^refused: db.shop is not offered to paris \(AccessPolicy db\)\n$/],
    ['milano', 'far.shop', 0, /\nthe exporter decides: run this command in its cluster\n$/],
    ['lima', 'web.shop', 2, /lima: no member of clusterset demo/],
    ['paris', 'none.shop', 2, /not exported by this cluster/],
    ['Paris', 'web.shop', 2, /FROM "Paris"/],
    ['paris/', 'web.shop', 2, /namespace of FROM ""/],
    ['paris/a/b/c', 'web.shop', 2, /FROM "paris\/a\/b\/c"/],
    ['paris/a/B', 'web.shop', 2, /FROM "B"/],
    ['paris', 'web', 2, /TO "web"/],
    ['paris', 'web.shop.svc', 2, /TO "web.shop.svc"/],
    ['paris', 'web.shop:0', 2, /port of TO "0"/],
    ['paris', 'web.shop:http', 2, /port of TO "http"/],
    ['paris', '10.42.0.7', 2, /TO "10.42.0.7"/],
    ['paris', '10.42.0.7:99999', 2, /99999/],
    ['paris', '[fd00::1', 2, /TO "\[fd00::1"/],
  ]
  for (const [from, to, code, text] of rows) {
    const result = await runCli(['access', 'check', from, to, '--site', file])
    t.equal(result.code, code, `${from} to ${to}`)
    t.match(result.stdout + result.stderr, text, `${from} to ${to}`)
  }
  const json = await runCli(['access', 'check', 'paris', 'db.shop', '--site', file, '-o', 'json'])
  t.match(JSON.parse(json.stdout), { answer: 'refused', notes: [] })
  const alone = new SiteFolder(t)
  const before = await runCli(['access', 'check', 'paris', 'web.shop', '--site', alone.file])
  t.match(before, { code: 3, stderr: /has not joined/ })
})

t.test('10,000 services: a bounded table, without pages of rows', async (t) => {
  const exported = Array.from({ length: 10_000 }, (_, i) => exportObject({ name: `s${i}` }))
  const rows = accessRows(world({}, { exports: exported }), () => true)
  t.equal(rows.length, 10_000)
  const folder = await site(t)
  const text = exported
    .slice(0, 250)
    .map((one) => JSON.stringify(one))
    .join('\n---\n')
  folder.write('objects/many.yaml', text)
  const { stdout, stderr } = await runCli(['show', 'access', '--site', folder.file])
  t.equal(stdout.split('\n').length, 202, '200 rows, a heading, and the end')
  t.match(stderr, /^and 54 more: -o wide\n/)
})
