/** The flags of labels, annotations and resources: their meaning, and the values that they refuse. */
import t from 'tap'
import { type MarkOptions, markFlags, withMarks } from '../../../../cli/installation/values-options.ts'
import { withOptions } from '../../../../cli/broker/deploy/deploy-options.ts'
import { DEFAULT_VALUES } from '../../../../install/values/install-values.ts'
import { messageOf } from '../../../support/failure.ts'
import { runCli } from '../../run-cli.ts'

const ASKED: MarkOptions = {
  objectLabel: [
    ['team', 'net'],
    ['old', null],
  ],
  objectAnnotation: [['example.org/why', 'a=b c']],
  podLabel: [['scan', 'yes']],
  podAnnotation: [['x', null]],
  resources: [
    ['agent', { requests: { cpu: '50m', memory: '128Mi' }, limits: { cpu: '1' } }],
    ['dns', { requests: { cpu: '1' } }],
    ['gateway', null],
  ],
}

t.test('what they say becomes values, and can be said again', (t) => {
  const before = {
    ...DEFAULT_VALUES,
    objects: { labels: { old: '1', kept: '2' }, annotations: {} },
    pods: { labels: {}, annotations: { x: 'y' } },
    gateway: { ...DEFAULT_VALUES.gateway, resources: {} },
  }
  const after = withMarks(before, ASKED)
  t.strictSame(after.objects, { labels: { kept: '2', team: 'net' }, annotations: { 'example.org/why': 'a=b c' } })
  t.strictSame(after.pods, { labels: { scan: 'yes' }, annotations: {} })
  t.strictSame(after.agent.resources, { requests: { cpu: '50m', memory: '128Mi' }, limits: { cpu: '1' } })
  t.strictSame(after.gateway, DEFAULT_VALUES.gateway, 'the default again')
  t.strictSame(after.routeagent, before.routeagent)
  t.strictSame(withMarks(before, {}), before)
  t.strictSame(
    markFlags(ASKED).map((pair) => pair.join(' ')),
    [
      '--object-label team=net',
      '--object-label old-',
      '--object-annotation example.org/why=a=b c',
      '--pod-label scan=yes',
      '--pod-annotation x-',
      '--resources agent=cpu:50m,memory:128Mi/cpu:1',
      '--resources dns=cpu:1',
      '--resources gateway-',
    ],
  )
  t.end()
})

t.test('what cannot be right is refused with flag, value and what was expected', async (t) => {
  const rows: readonly (readonly [flag: string, word: string, expected: string])[] = [
    ['--object-label', 'team', 'expected key=value, or key- to remove one'],
    ['--object-label', 'a b=c', 'expected a Kubernetes key'],
    ['--object-label', 'team=a b', "expected a label's value"],
    ['--object-label', 'app.kubernetes.io/name=mine', 'expected another key than app.kubernetes.io/name'],
    ['--object-label', 'app.kubernetes.io/managed-by-', 'expected another key than app.kubernetes.io/managed-by'],
    ['--object-annotation', 'sealane.io/site-digest=1', 'expected another key than sealane.io/site-digest'],
    ['--pod-label', 'app.kubernetes.io/component=x', 'expected another key than app.kubernetes.io/component'],
    ['--pod-annotation', '=x', 'expected a Kubernetes key'],
    ['--pod-label', 'sidecar.istio.io/inject=true', 'expected sidecar.istio.io/inject=false'],
    ['--object-annotation', 'linkerd.io/inject=enabled', 'expected linkerd.io/inject=disabled'],
    ['--pod-annotation', 'openshift.io/required-scc=privileged', 'expected another key than openshift.io/required-scc'],
    ['--resources', 'broker=cpu:1', 'expected part=requests/limits, or part-, with a part of agent, dns'],
    ['--resources', 'agent=', 'expected at least one quantity, such as cpu:50m'],
    ['--resources', 'agent=cpu', 'expected resource:quantity'],
    ['--resources', 'agent=cpu:much', 'expected resource:quantity'],
    ['--resources', 'agent=cpu:1,cpu:2', 'expected each resource once'],
    ['--resources', 'agent=cpu:2/cpu:1', 'expected a request of cpu of at most its limit, 1'],
    ['--resources', 'agent=cpu:1/cpu:1/cpu:1', 'expected requests, optionally followed by a slash and limits'],
  ]
  for (const [flag, word, expected] of rows) {
    const { code, stderr } = await runCli(['join', '--context', 'c1', flag, word])
    t.equal(code, 2, word)
    t.match(stderr, `${flag} ${JSON.stringify(word)}: ${expected}`)
  }
})

t.test('marks of objects that no pod could be started with are refused', async (t) => {
  const marks = (bytes: number): MarkOptions => ({ objectAnnotation: [['a', 'x'.repeat(bytes)]] })
  t.equal(withMarks(DEFAULT_VALUES, marks(100_000)).objects.annotations['a']?.length, 100_000)
  const refused = await messageOf(Promise.resolve().then(() => withMarks(DEFAULT_VALUES, marks(125_000))))
  t.equal(refused, '--object-label, --object-annotation: expected at most 120000 bytes of keys and values together')
})

t.test('a site without Kubernetes has no objects', async (t) => {
  const { code, stderr } = await runCli(['join', '--token', 'x', '--object-label', 'a=b'])
  t.equal(code, 2)
  t.match(stderr, '--object-label: only for a Kubernetes cluster')
})

t.test('resources of an etcd that is not installed with the broker', async (t) => {
  const refused = await messageOf(() =>
    withOptions(DEFAULT_VALUES, { resources: [['etcd', { requests: { cpu: '1' } }]] }),
  )
  t.match(refused, '--resources etcd: expected an etcd that is installed with the broker')
  const both = withOptions(DEFAULT_VALUES, { replicas: 3, resources: [['etcd', { requests: { cpu: '1' } }]] })
  t.strictSame(both.etcd.resources, { requests: { cpu: '1' } })
})
