/**
 * A bundle contains only listed fields. No form of a secret gets out of any field, and every field that the checks read
 * does.
 */
import { Buffer } from 'node:buffer'
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { type Answer, collect, factsItem } from '../../../cli/bundle/items.ts'
import {
  type AllowedFields,
  KIND_FIELDS,
  LEFT_OUT,
  allowedBy,
  letOut,
  objectLetOut,
} from '../../../cli/bundle/kind-fields.ts'
import { spellingsOf } from '../../../cli/bundle/redactor.ts'
import { diagnoseMember } from '../../../explain/diagnose-member.ts'
import type { FactSet } from '../../../explain/facts/fact.ts'
import { FACT_KINDS, type FactKind, objectSchema } from '../../../explain/facts/shapes.ts'
import { parseYaml } from '../../../kubeapi/yaml.ts'
import type { Cluster, Gateway } from '../../../model/objects.ts'
import {
  HEALTHY_BROKER,
  NOW,
  condition,
  factSet,
  healthyObjects,
  healthyReports,
  podObject,
  reportFact,
} from '../../support/objects/member-facts.ts'
import { OBJECT_FORMS, TEXT_FORMS } from './secret-forms.ts'

const SECRET = 'hunter2Zq-horse7'

/** Writes a bundle of these answers alone, so that a secret found in one form does not help to remove the next. */
async function written(...answers: readonly Answer[]): Promise<string> {
  const items = answers.map((answer, i) => ({ name: `x/${i}`, ms: 10_000, maxBytes: 1 << 20, ask: async () => answer }))
  const { files, missing } = await collect(items, new AbortController().signal)
  return files.map(({ content }) => content.toString()).join('\n') + JSON.stringify(missing)
}

function finds(text: string, depth = 2): string[] {
  const hex = Buffer.from(SECRET).toString('hex')
  const here = [...spellingsOf(SECRET), hex.slice(0, 12), hex.slice(-12)].filter((one) =>
    text.toLowerCase().includes(one.toLowerCase()),
  )
  const inside = depth === 0 ? [] : (text.match(/[\w+/-]{16,}={0,2}/g) ?? [])
  return [...here, ...inside.flatMap((run) => finds(Buffer.from(run, 'base64').toString('latin1'), depth - 1))]
}

function noSecret(t: Test, where: string, text: string): void {
  if (finds(text).length > 0) t.fail(`${where}: ${text.slice(0, 2000)}`)
}

const log = (fields: object): Answer => ({
  log: JSON.stringify({ level: 'info', time: '2026-11-26T00:00:00Z', component: 'agent', msg: 'x', ...fields }),
})
const PLACES: Readonly<Record<string, (text: string) => Answer>> = {
  'a log of others': (text) => ({ log: `starting\n${text}\nat main (x.js:1:1)` }),
  'a journal': (text) => ({ log: `2026-11-26T10:00:00+0000 host sealane[7]: ${text}` }),
  'a message of our log': (text) => log({ msg: text }),
  'a reason in words': (text) => log({ why: text }),
  'an error in a log': (text) => log({ err: { type: 'Error', message: text, cause: { message: text } } }),
  'a plan': (text) => ({ text: `# nft\nadd rule ip x y counter\n${text}\n` }),
  'a plan, in JSON': (text) => ({ text: `${JSON.stringify({ text })}\n${JSON.stringify(JSON.stringify([text]))}\n` }),
  'a page of readiness': (text) => ({ text: `agent: ${text}\n` }),
  'a metric': (text) => ({ metrics: `sealane_x{note=${JSON.stringify(text)}} 1\n` }),
  'the kernel': (json) => ({ json: { nftables: [{ rule: { comment: json } }] } }),
  'a status page': (text) => ({
    json: { part: 'agent', note: text, joinRefused: text },
    allowed: { part: 'plain', joinRefused: 'plain' },
  }),
  'a condition': (message) => ({ kind: 'Gateway', items: [{ status: { conditions: [{ type: 'Ready', message }] } }] }),
  'an Event': (message) => ({ kind: 'Event', items: [{ message }] }),
  'an argument of ours': (text) => ({
    kind: 'Pod',
    items: [{ spec: { containers: [{ name: 'agent', args: ['up', text] }] } }],
  }),
  'our annotation': (text) => ({
    kind: 'Lease',
    items: [{ metadata: { annotations: { 'sealane.io/handover': text } } }],
  }),
  'a fact': (message) => ({
    facts: factSet({}, [
      { t: 'unanswered', what: 'Node', reason: 'NotAnswered', message, needed: true, source: 'x', at: '' },
    ]),
  }),
}

t.test('no form of a secret comes out of a text', async (t) => {
  t.ok(Object.keys(TEXT_FORMS).length >= 60)
  for (const [form, of] of Object.entries(TEXT_FORMS)) {
    t.not(finds(of(SECRET)).length, 0, `${form} has it`)
    for (const [place, answer] of Object.entries(PLACES)) {
      noSecret(t, `${form} in ${place}`, await written(answer(of(SECRET))))
    }
  }
})

t.test('no form of a secret comes out of an object, as such and as a fact', async (t) => {
  for (const [form, { kind, of }] of Object.entries(OBJECT_FORMS)) {
    const object = of(SECRET)
    t.not(finds(JSON.stringify(object)).length, 0, `${form} has it`)
    noSecret(t, form, await written({ kind, items: [object] }))
    noSecret(t, `${form} as a fact`, await written({ facts: factSet({ [kind as FactKind]: [object] }, []) }))
  }
})

t.test('what is no plain value in a log, and a key that nobody knows, is left out', async (t) => {
  const text = await written(log({ cluster: { a: SECRET }, unknown: SECRET, lane: 3 }), { log: `{"a":["${SECRET}"]}` })
  t.match(
    text,
    `"cluster":{"a":"${LEFT_OUT}"},"unknown":"${LEFT_OUT}","lane":3`.replace(/\{"a":"<left out>"\}/, `"${LEFT_OUT}"`),
  )
})

t.test('metrics of another program are left out, and counted', async (t) => {
  const text = await written({ metrics: `sealane_agent_exports 1\nother_total{a="${SECRET}"} 1\n` })
  t.match(text, '# <left out>: 1 lines\nsealane_agent_exports 1\n')
  noSecret(t, 'metrics', text)
})

const KINDS = [...KIND_FIELDS.keys()]
/** Field names that are on no list. */
const stranger = fc.stringMatching(/^[a-z]{2,8}Zz$/)
const secret = fc.stringMatching(/^[a-z]{8}[0-9a-z]{12,30}$/)
const steps = fc.array(fc.oneof(stranger, fc.constant('[]')), { maxLength: 5 })

/**
 * Returns a path through the allowed fields that a strange field may extend. It does not enter maps, whose names are
 * free.
 */
function wayInto(allowed: AllowedFields, turns: readonly number[]): readonly string[] {
  const [turn, ...others] = turns
  const deeper = Object.entries(allowed).filter((pair): pair is [string, AllowedFields] => typeof pair[1] === 'object')
  if (turn === undefined || deeper.length === 0) return []
  const [name, next] = deeper[turn % deeper.length] ?? ['', {}]
  return [name, ...wayInto(next, others)]
}

function placed(path: readonly string[], value: unknown): unknown {
  const [step, ...others] = path
  if (step === undefined) return value
  return step === '[]' ? [placed(others, value)] : { [step]: placed(others, value) }
}

t.test('a text anywhere that no list names never comes out, whatever it looks like', async (t) => {
  const seed = Number(process.env['SEALANE_FUZZ_SEED'] ?? 20_261_128)
  const asked = fc.tuple(
    fc.constantFrom(...KINDS, 'Secret', 'Widget'),
    fc.array(fc.nat(50), { maxLength: 5 }),
    stranger,
    steps,
    secret,
  )
  await fc.assert(
    fc.asyncProperty(asked, async ([kind, turns, name, more, text]) => {
      const object = placed([...wayInto(KIND_FIELDS.get(kind) ?? {}, turns), name, ...more], text)
      const out = await written(
        { kind, items: [object as object] },
        { facts: factSet({ [kind as FactKind]: [object] }, []) },
      )
      t.notMatch(out, text, `SEALANE_FUZZ_SEED=${seed}`)
      t.match(out, LEFT_OUT)
    }),
    { seed, numRuns: 500 },
  )
  await fc.assert(
    fc.asyncProperty(asked, async ([kind, turns, name, more, text]) => {
      // The kinds of value are swapped: an object where a plain value is expected, and a plain value where an object is
      // expected.
      const way = wayInto(KIND_FIELDS.get(kind) ?? {}, turns)
      const fields = letOutAt(KIND_FIELDS.get(kind) ?? {}, way)
      const plain = Object.keys(fields).find((key) => fields[key] === 'plain')
      const wrong = [placed(way, text), ...(plain === undefined ? [] : [placed([...way, plain, name, ...more], text)])]
      for (const object of wrong)
        t.notMatch(JSON.stringify(objectLetOut(kind, object)), text, `SEALANE_FUZZ_SEED=${seed}`)
    }),
    { seed, numRuns: 300 },
  )
})

function letOutAt(allowed: AllowedFields, [step, ...others]: readonly string[]): AllowedFields {
  return step === undefined ? allowed : letOutAt(allowed[step] as AllowedFields, others)
}

/** Returns each field of a schema as a path to a plain value. */
function leaves(allowed: unknown, path: readonly string[] = []): readonly (readonly string[])[] {
  if (allowed === 'plain') return [path]
  if (allowed === 'map') return [[...path, 'sealane.io/x']]
  return Object.entries(allowed as AllowedFields).flatMap(([name, next]) => leaves(next, [...path, name]))
}

t.test('what checks read of an object is let out', async (t) => {
  for (const kind of FACT_KINDS) {
    for (const path of leaves(allowedBy(objectSchema(kind)))) {
      const object = placed(path, 'x')
      t.same(objectLetOut(kind, object), object, `${kind}: ${path.join('.')}`)
    }
  }
})

t.test('checks say of the facts in a bundle what they said of the facts', async (t) => {
  const healthy = healthyObjects()
  const host = {
    node: 'gw0',
    devices: [{ name: 'eth0', addresses: ['10.0.0.1/24'] }],
    sysctls: { 'net/ipv4/ip_forward': '0' },
  }
  const policy = {
    metadata: { name: 'deny', namespace: 'shop' },
    spec: { podSelector: { matchLabels: { app: 'web' } }, policyTypes: ['Ingress'] },
  }
  const notValid = condition('Valid', 'False', 'TrafficPolicyInvalid', 'spec.order: 9 tiers')
  const service = {
    metadata: { name: 'web0', namespace: 'shop' },
    spec: { selector: { app: 'web' }, ports: [{ port: 80, targetPort: 'http' }] },
  }
  const waiting = { waiting: { reason: 'ImagePullBackOff', message: 'Back-off pulling image "sealane:9"' } }
  const broken = podObject('agent', 'sealane-agent-0', 'w0')
  const rows: readonly (readonly [string, FactSet])[] = [
    ['healthy', factSet(healthy)],
    ['no gateway', factSet({ ...healthy, Gateway: [], Lease: [] })],
    ['cut links', factSet({ ...healthy, Gateway: (healthy.Gateway as Gateway[]).map(withoutLinks) })],
    [
      'pods',
      factSet({
        ...healthy,
        Pod: [
          {
            ...broken,
            status: { phase: 'Pending', containerStatuses: [{ ready: false, restartCount: 9, state: waiting }] },
          },
        ],
      }),
    ],
    [
      'cordoned',
      factSet({
        ...healthy,
        Node: (healthy.Node as object[]).map((node) => ({
          ...node,
          spec: { unschedulable: true, taints: [{ key: 'a', effect: 'NoSchedule' }] },
        })),
      }),
    ],
    ['policies', factSet({ ...healthy, NetworkPolicy: [policy], Service: [service] })],
    [
      'traffic policies',
      factSet({
        ...healthy,
        TrafficPolicy: [{ metadata: { name: 'web', namespace: 'shop' }, status: { conditions: [notValid] } }],
        ClusterTrafficPolicy: [{ metadata: { name: 'default' }, status: { conditions: [notValid] } }],
      }),
    ],
    [
      'broker away',
      factSet(
        healthy,
        healthyReports({
          ...HEALTHY_BROKER,
          publish: 'waiting',
          watch: 'waiting',
          reason: 'BrokerUnreachable',
          failing: 3,
        }),
      ),
    ],
    [
      'refused',
      factSet(healthy, [
        reportFact('agent', 'a', {
          refused: [
            { code: 'PartForbidden', what: 'patch gateways', by: 'webhook x', places: 3, since: NOW, last: NOW },
          ],
        }),
      ]),
    ],
    [
      'host',
      factSet(healthy, [
        ...healthyReports(),
        {
          t: 'probe',
          kind: 'host',
          source: 'x',
          at: NOW,
          items: [{ ...host, disks: [{ path: '/', used: 99, limit: 100 }] }],
        },
      ]),
    ],
    [
      'not answered',
      factSet(healthy, [
        {
          t: 'unanswered',
          what: 'Node',
          reason: 'RightMissing',
          message: 'list nodes',
          needed: true,
          source: 'x',
          at: NOW,
        },
      ]),
    ],
  ]
  const said = new Set<string>()
  for (const [name, facts] of rows) {
    const { files } = await collect([factsItem(10_000, async () => facts)], new AbortController().signal)
    const before = diagnoseMember(facts)
    t.same(diagnoseMember(JSON.parse(String(files[0]?.content))), before, name)
    said.add(before.problems.map(({ reason }) => reason).join())
  }
  t.equal(said.size, rows.length, `each says something else: ${[...said].join(' ')}`)
})

t.test('what a member chooses takes no word of ours out of the facts', async (t) => {
  const objects = healthyObjects()
  const labels = Object.fromEntries(
    ['podCIDRs', 'heartbeatTime', 'createdAtMs', ...Array.from({ length: 200 }, (_, i) => `Filler-${i}`)].map(
      (word, i) => [`token-${i}`, word],
    ),
  )
  const [far, ...others] = (objects.Cluster ?? []) as readonly Cluster[]
  if (far === undefined) throw new Error('no Cluster')
  const hostile = { ...far, spec: { ...far.spec, labels } }
  const facts = factSet({ ...objects, Cluster: [hostile, ...others] }, healthyReports())
  const secret: Answer = { text: `password=${SECRET}\nelsewhere ${SECRET}` }
  const items = [
    factsItem(10_000, async () => facts),
    { name: 'x', ms: 10_000, maxBytes: 1 << 20, ask: async () => secret },
  ]
  const { files } = await collect(items, new AbortController().signal)
  t.same(diagnoseMember(JSON.parse(String(files[0]?.content))), diagnoseMember(facts))
  t.notMatch(files[1]?.content.toString(), SECRET, 'and secrets are still found everywhere')
})

t.test('a field that an earlier command does not know is absent from its facts', async (t) => {
  const [report] = healthyReports()
  if (report?.t !== 'report') throw new Error('no report')
  const later = { ...report, report: { ...report.report, newSince: { a: [1] } } }
  const { files } = await collect(
    [factsItem(10_000, async () => factSet(healthyObjects(), [later]))],
    new AbortController().signal,
  )
  t.notMatch(String(files[0]?.content), /newSince/u)
})

function withoutLinks(gateway: Gateway): Gateway {
  const { status } = gateway
  if (status === undefined) return gateway
  const connections = status.connections.map((one) => ({
    ...one,
    state: 'down' as const,
    message: 'no answer',
    cause: 'NoneAnswers' as const,
  }))
  return { ...gateway, status: { ...status, connections } }
}

t.test('of a kind that is not listed goes out its name', async (t) => {
  const object = { apiVersion: 'v1', kind: 'Widget', metadata: { name: 'a', namespace: 'b', uid: 'c' }, spec: { d: 1 } }
  const metadata = { name: 'a', namespace: 'b', uid: LEFT_OUT }
  t.same(objectLetOut('Widget', object), { apiVersion: 'v1', kind: 'Widget', metadata, spec: LEFT_OUT })
})

t.test('names of what JavaScript has anyway are no names of a list', async (t) => {
  const object = JSON.parse('{"__proto__":{"a":"x"},"constructor":"x","toString":"x"}') as object
  t.notMatch(JSON.stringify(letOut(object, {})), '"x"')
  t.same(objectLetOut('constructor', { spec: 'x' }), { spec: LEFT_OUT })
})

t.test('a site file keeps what decides who may call', async (t) => {
  const spec = { exposure: 'exports', failClosed: false, excludedNamespaces: ['shop'] }
  const data = { 'site.yaml': JSON.stringify({ apiVersion: 'v1', kind: 'Site', spec }) }
  const { data: kept } = objectLetOut('ConfigMap', { data }) as { readonly data: Record<string, string> }
  t.same((parseYaml(kept['site.yaml'] ?? '') as { readonly spec: unknown }).spec, spec)
})
