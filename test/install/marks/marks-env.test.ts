/**
 * Labels and annotations that the operator configures for all objects reach, unchanged, the parts that make objects
 * themselves.
 */
import t from 'tap'
import { readObjectMarks } from '../../../compose/site/kube-site.ts'
import {
  MAX_MARKS_BYTES,
  type Marks,
  OBJECT_MARKS,
  marksProblem,
  objectMarksEnv,
} from '../../../install/values/marks.ts'
import { type ManifestObject, placeholders } from '../../../install/values/manifest.ts'
import { planBroker } from '../../../install/plan-broker.ts'
import { planMember } from '../../../install/plan-member.ts'
import { DEFAULT_VALUES, type InstallValues } from '../../../install/values/install-values.ts'
import { messageOf } from '../../support/failure.ts'
import { chartTemplate } from '../../../scripts/chart-yaml.ts'

type Env = readonly { readonly name: string; readonly value?: string }[]
interface Workload {
  readonly template?: { readonly spec: { readonly containers: readonly [{ readonly env?: Env }] } }
}

function envs(values: InstallValues): Map<string, Env> {
  const objects = [...planMember(values), ...planBroker(values)].flatMap(
    (part): readonly ManifestObject[] => part.objects,
  )
  const found = new Map<string, Env>()
  for (const { metadata, ...object } of objects) {
    const { template } = (object as { readonly spec?: Workload }).spec ?? {}
    if (template !== undefined) found.set(metadata.name, template.spec.containers[0].env ?? [])
  }
  return found
}

const asEnv = (entries: Env): Record<string, string> =>
  Object.fromEntries(entries.map(({ name, value = '' }) => [name, value]))

const MARKS: Marks = {
  labels: { team: 'net', 'example.org/tier': '' },
  annotations: { 'example.org/why': 'a "b" <c> & $(NODE_NAME) $$(X) \\ ü\n{{ .x }}' },
}

t.test('every part that writes objects has them, as they were said', async (t) => {
  const [before, after] = [envs(DEFAULT_VALUES), envs({ ...DEFAULT_VALUES, objects: MARKS })]
  t.same([...after.keys()].sort(), [
    ...['sealane-agent', 'sealane-broker', 'sealane-dns', 'sealane-gateway', 'sealane-routeagent'],
  ])
  for (const [name, env] of after) {
    const was = before.get(name) ?? []
    if (name === 'sealane-broker') t.same(env, was, 'the broker writes none')
    else {
      t.same(env.slice(0, was.length), was, `${name}: others as before`)
      t.same(readObjectMarks(asEnv(env)), MARKS, name)
      // Kubernetes replaces $(NODE_NAME) by the value of the variable NODE_NAME.
      for (const { value } of env.slice(was.length)) t.notMatch(value, '$', `${name}: nothing is expanded`)
    }
  }
})

t.test('one kind alone, and none', async (t) => {
  const names = (marks: Marks): readonly string[] => (objectMarksEnv(marks) as Env).map(({ name }) => name)
  t.same(names({ labels: {}, annotations: {} }), [])
  t.same(names({ ...MARKS, annotations: {} }), [OBJECT_MARKS.labels])
  t.same(names({ ...MARKS, labels: {} }), [OBJECT_MARKS.annotations])
  t.same(objectMarksEnv({ labels: { b: '1', a: '2' }, annotations: {} }), [
    { name: 'SEALANE_OBJECT_LABELS', value: '{"a":"2","b":"1"}' },
  ])
  t.same(readObjectMarks({}), { labels: {}, annotations: {} })
  t.same(readObjectMarks({ [OBJECT_MARKS.labels]: '' }).labels, {})
})

t.test('the chart hands on its own values', async (t) => {
  const agent = planMember(placeholders(DEFAULT_VALUES)).find(({ name }) => name === 'agent')
  const text = chartTemplate(agent?.objects ?? [], 'member.enabled')
  for (const [kind, name] of Object.entries(OBJECT_MARKS)) {
    const lines = [
      `{{- if .Values.objects.${kind} }}`,
      `            - name: ${name}`,
      `{{- with (.Values.objects.${kind} | toJson | replace "$" "\\\\u0024") }}`,
      '              value: {{ . | quote }}',
      '{{- end }}',
      '{{- end }}',
    ]
    t.ok(text.includes(lines.join('\n')), kind)
  }
})

t.test('what cannot be right names variable, key and what was expected', async (t) => {
  const { labels, annotations } = OBJECT_MARKS
  const rows: readonly (readonly [name: string, text: string, expected: string])[] = [
    [labels, 'team=net', `${labels} "team=net": expected a JSON object of strings, such as {"team":"net"}`],
    [labels, '["team"]', `${labels} "[\\"team\\"]": expected a JSON object of strings`],
    [labels, 'null', `${labels} "null": expected a JSON object of strings`],
    [labels, '{"a b":"c"}', `${labels}: key "a b": expected a Kubernetes key`],
    [labels, '{"team":1}', `${labels}: value of team: expected a string`],
    [labels, '{"team":"a b"}', `${labels}: value of team "a b": expected a label's value`],
    [labels, '{"app.kubernetes.io/managed-by":"me"}', 'expected another key than app.kubernetes.io/managed-by'],
    // kube-proxy and cluster DNS would treat an imported slice as one of a local Service.
    [labels, '{"kubernetes.io/service-name":"web"}', 'expected another key than kubernetes.io/service-name'],
    [
      labels,
      '{"endpointslice.kubernetes.io/managed-by":"x"}',
      'expected another key than endpointslice.kubernetes.io/',
    ],
    [annotations, '{"sealane.io/leave-requested":"x"}', `${annotations}: key "sealane.io/leave-requested": expected`],
  ]
  for (const [name, text, expected] of rows) {
    const said = await messageOf(Promise.resolve().then(() => readObjectMarks({ [name]: text })))
    t.ok(said.includes(expected), `${text}: ${said}`)
  }
})

t.test('no more than what a program can be started with', async (t) => {
  const long = { labels: {}, annotations: { a: 'x'.repeat(MAX_MARKS_BYTES - 8), b: '' } }
  t.match(marksProblem(long), 'at most 120000 bytes')
  t.equal(marksProblem(MARKS), undefined)
})
