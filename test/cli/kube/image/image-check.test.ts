/** Whether nodes can pull the image, from facts of the cluster and from pods that try it. */
import t from 'tap'
import { type ImageCheckInit, imageProblems, requireImage } from '../../../../cli/installation/image-check.ts'
import { type ImageQuestion, nodeList, planImageCheck } from '../../../../cli/installation/plan-image-check.ts'
import { fullImageName, parseImageName } from '../../../../install/values/install-values.ts'
import type { ManifestObject } from '../../../../install/values/manifest.ts'
import { FakeClock } from '../../../../reconcile/fake-clock.ts'
import { UserError } from '../../../../runtime/errors.ts'
import { MemoryAdmin } from '../../../support/memory-admin.ts'
import { nodeObject } from '../../../support/objects/node-objects.ts'

const LOCAL = 'localhost/sealane:1'
const REMOTE = 'registry.example.org/sealane:1'

const question = (name: string, more: Partial<ImageQuestion> = {}, pullPolicy = 'IfNotPresent'): ImageQuestion => ({
  image: { ...parseImageName(name), pullPolicy },
  pullSecrets: [],
  namespace: 'sealane-system',
  on: 'every',
  ...more,
})

interface NodeInit {
  readonly images?: readonly string[]
  readonly ready?: string
  readonly os?: string
  readonly spec?: object
}

function node(
  name: string,
  { images = ['pause:3'], ready = 'True', os = 'linux', spec = {} }: NodeInit = {},
): ManifestObject {
  return {
    ...nodeObject(name, { metadata: { labels: { 'kubernetes.io/os': os } } }),
    spec,
    status: { conditions: [{ type: 'Ready', status: ready }], images: images.map((one) => ({ names: [one] })) },
  }
}

function pod(on: string, image: string, state: object): ManifestObject {
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name: `agent-${on}`, namespace: 'sealane-system', labels: { 'app.kubernetes.io/name': 'sealane' } },
    spec: { nodeName: on, containers: [{ name: 'agent', image }] },
    status: { containerStatuses: [{ name: 'agent', state }] },
  }
}

const FULL = Array.from({ length: 50 }, (_, i) => `r.example.org/other:${i}`)

t.test('what is known without asking', (t) => {
  const NOBODY = 'and localhost is not a registry, so no node can pull it'
  const rows: readonly (readonly [
    what: string,
    question: ImageQuestion,
    nodes: readonly ManifestObject[],
    problems: readonly string[],
    probe: readonly string[],
  ])[] = [
    ['all have it', question(LOCAL), [node('a', { images: [LOCAL] })], [], []],
    [
      'none has it',
      question(LOCAL),
      [node('a'), node('b')],
      [`no image: ${LOCAL} is not on any of the 2 nodes, ${NOBODY}`],
      [],
    ],
    [
      'one lacks it',
      question(LOCAL),
      [node('a', { images: [LOCAL] }), node('b')],
      [`no image: ${LOCAL} is not on node b, ${NOBODY}`],
      [],
    ],
    ['one has it, one is enough', question(LOCAL, { on: 'one' }), [node('a', { images: [LOCAL] }), node('b')], [], []],
    ['not said', question(LOCAL), [node('a', { images: [] })], [], []],
    ['not all is said', question(LOCAL), [node('a', { images: FULL })], [], []],
    ['a node that is down', question(LOCAL), [node('a', { images: [LOCAL] }), node('b', { ready: 'Unknown' })], [], []],
    ['a node of Windows', question(LOCAL), [node('a', { images: [LOCAL] }), node('b', { os: 'windows' })], [], []],
    [
      'a virtual node',
      question(LOCAL),
      [node('a', { images: [LOCAL] }), node('b', { spec: { taints: [{ key: 'virtual-kubelet.io/provider' }] } })],
      [],
      [],
    ],
    [
      'never fetched',
      question(REMOTE, {}, 'Never'),
      [node('a')],
      [`no image: ${REMOTE} is not on node a, and with --image-pull-policy Never no node pulls it`],
      [],
    ],
    ['a registry is asked', question(REMOTE), [node('b'), node('a'), node('c', { images: [REMOTE] })], [], ['a', 'b']],
    ['a registry on the nodes is one', question('localhost:5000/sealane:1'), [node('a')], [], ['a']],
    ['one node is enough for a registry', question(REMOTE, { on: 'one' }), [node('a'), node('b')], [], ['a']],
    ['one that has it too', question(REMOTE, { on: 'one' }), [node('a'), node('b', { images: [REMOTE] })], [], []],
    ['fetched each time', question(REMOTE, {}, 'Always'), [node('a', { images: [REMOTE] })], [], ['a']],
    [
      'not where no pod goes',
      question(LOCAL, { on: 'one' }),
      [node('a', { images: [LOCAL], spec: { taints: [{ effect: 'NoSchedule' }] } }), node('b')],
      [`no image: ${LOCAL} is not on node b, ${NOBODY}`],
      [],
    ],
    [
      'unless there is nothing else',
      question(LOCAL, { on: 'one' }),
      [node('a', { images: [LOCAL], spec: { unschedulable: true } })],
      [],
      [],
    ],
  ]
  for (const [what, asked, nodes, problems, probe] of rows) {
    const plan = planImageCheck(asked, { nodes, pods: [], secrets: new Set(), namespaceThere: true })
    t.strictSame({ problems: plan.problems, probe: plan.probe }, { problems, probe }, what)
  }
  const many = Array.from({ length: 100 }, (_, i) => node(`n${i}`))
  t.equal(
    planImageCheck(question(REMOTE), { nodes: many, pods: [], secrets: undefined, namespaceThere: true }).probe.length,
    20,
  )
  t.end()
})

t.test('pods that are there, and pull secrets', (t) => {
  const nodes = [node('a', { images: FULL })]
  const look = (
    asked: ImageQuestion,
    pods: readonly ManifestObject[],
    secrets?: ReadonlySet<string>,
    namespaceThere?: boolean,
  ) => planImageCheck(asked, { nodes, pods, secrets, namespaceThere })
  t.strictSame(look(question(REMOTE), [pod('a', REMOTE, { running: {} })]).probe, [], 'it runs there')
  t.strictSame(look(question(REMOTE), [pod('a', LOCAL, { running: {} })]).probe, ['a'], 'another one runs there')
  const stuck = pod('a', REMOTE, { waiting: { reason: 'ImagePullBackOff', message: 'Back-off pulling' } })
  t.strictSame(look(question(REMOTE), [stuck]), {
    problems: [],
    notes: ['pod agent-a on a had no image so far: Back-off pulling'],
    probe: ['a'],
  })
  const named = question(REMOTE, { pullSecrets: ['key', 'other'] })
  t.strictSame(look(named, [], new Set(['other'])), {
    problems: [
      'no pull secret: there is no Secret sealane-system/key: create it with ' +
        'kubectl --namespace sealane-system create secret docker-registry key',
    ],
    notes: [],
    probe: [],
  })
  const made = 'create it with kubectl --namespace sealane-system create secret docker-registry key'
  const first =
    'create it with kubectl create namespace sealane-system; kubectl --namespace sealane-system create secret'
  for (const [there, want] of [
    [true, made],
    [undefined, made],
    [false, `${first} docker-registry key`],
  ] as const) {
    const [problem = ''] = look(named, [], new Set(['other']), there).problems
    t.ok(problem.endsWith(`: ${want}`), `namespace there: ${String(there)}: ${problem}`)
  }
  const [, second = ''] = look(named, [], new Set(), false).problems
  t.notOk(second.includes('create namespace'), 'it is made once')
  t.strictSame(look(named, [], undefined).problems, [], 'who may not read them hears nothing of them')
  t.end()
})

t.test('names', (t) => {
  const rows: readonly (readonly [string, string])[] = [
    ['busybox', 'docker.io/library/busybox:latest'],
    ['busybox:1', 'docker.io/library/busybox:1'],
    ['tools/sealane:1', 'docker.io/tools/sealane:1'],
    ['localhost/sealane:1', 'localhost/sealane:1'],
    ['r:5000/sealane', 'r:5000/sealane:latest'],
    ['r.example.org/a/b:2', 'r.example.org/a/b:2'],
  ]
  for (const [text, want] of rows) t.equal(fullImageName(text), want, text)
  t.strictSame(parseImageName('r:5000/a', '9'), { repository: 'r:5000/a', tag: '9' })
  t.equal(nodeList(['a', 'b', 'c', 'd', 'e', 'f', 'g']), 'nodes a, b, c, d, e and 2 more')
  t.end()
})

/** A cluster in which a node gives these answers to image-check pods, one for each time that their status is read. */
class AnsweringAdmin extends MemoryAdmin {
  readonly answers: Readonly<Record<string, readonly object[]>>
  readonly #looks = new Map<string, number>()
  constructor(objects: readonly ManifestObject[], answers: Readonly<Record<string, readonly object[]>>) {
    super(objects)
    this.answers = answers
  }

  override async list(...words: Parameters<MemoryAdmin['list']>): Promise<readonly ManifestObject[]> {
    const found = await super.list(...words)
    if (words[1] !== 'Pod' || words[2].labelSelector?.includes('image-check') !== true) return found
    return found.map((one) => {
      const { nodeName = '' } = one['spec'] as { nodeName?: string }
      const i = this.#looks.get(nodeName) ?? 0
      this.#looks.set(nodeName, i + 1)
      const answers = this.answers[nodeName] ?? []
      return { ...one, status: answers[Math.min(i, answers.length - 1)] }
    })
  }
}

const waiting = (reason: string, message: string) => ({
  containerStatuses: [{ state: { waiting: { reason, message } } }],
})
const ended = { phase: 'Succeeded' }

async function asked(admin: MemoryAdmin, dryRun = false) {
  const clock = new FakeClock()
  let said = ''
  const { signal } = new AbortController()
  const init: ImageCheckInit = { dryRun, clock, signal, say: (text) => void (said += text) }
  let done: readonly string[] | undefined
  const problems = imageProblems(admin, question(REMOTE), init).then((found) => (done = found))
  for (let n = 0; n < 1000 && done === undefined; n += 1) await clock.advance(500)
  return { problems: await problems, said }
}

t.test('nodes are asked by pods, which go again', async (t) => {
  const admin = new AnsweringAdmin([node('a'), node('b'), node('c')], {
    a: [{ phase: 'Pending' }, ended],
    b: [waiting('ErrImagePull', 'manifest unknown'), waiting('ImagePullBackOff', 'Back-off')],
    c: [
      {
        phase: 'Failed',
        containerStatuses: [{ state: { terminated: { exitCode: 1, message: 'exec format error' } } }],
      },
    ],
  })
  const { problems, said } = await asked(admin)
  t.strictSame([...problems].sort(), [
    `no image: node b cannot get ${REMOTE}: manifest unknown`,
    `no image: node c cannot get ${REMOTE}: exec format error`,
  ])
  t.equal(said, `checking nodes a, b, c for image ${REMOTE}\n`)
  t.equal(
    admin.done.filter((line) => line.startsWith('create Pod default/')).length,
    3,
    'our namespace is not there yet',
  )
  t.strictSame(await admin.list('v1', 'Pod', {}), [], 'none is left')
})

t.test('a node that takes no pod says nothing about the image', async (t) => {
  const ran = { containerStatuses: [{ state: { terminated: { exitCode: 137, reason: 'ContainerStatusUnknown' } } }] }
  const rows: readonly (readonly [status: object, why: string])[] = [
    [{ reason: 'OutOfpods', message: 'Node did not have enough resource: pods' }, 'Node did not .* pods'],
    [{ reason: 'OutOfcpu' }, 'OutOfcpu'],
    [{ reason: 'Evicted', message: 'The node was low on resource: memory', ...ran }, 'The node was low .* memory'],
    [{ reason: 'UnexpectedAdmissionError', message: 'Allocate failed' }, 'Allocate failed'],
    [{ ...waiting('ContainerCreating', '') }, 'no reason'],
  ]
  for (const [status, why] of rows) {
    const b = [waiting('ErrImagePull', 'manifest unknown'), waiting('ImagePullBackOff', 'Back-off')]
    const answers = { a: [{ phase: 'Failed', ...status }], b, c: [ended] }
    const { problems, said } = await asked(new AnsweringAdmin([node('a'), node('b'), node('c')], answers))
    t.strictSame(problems, [`no image: node b cannot get ${REMOTE}: manifest unknown`], why)
    t.match(
      said,
      new RegExp(`\\n {2}image: node a was not checked: it did not accept the pod for the check: ${why}\\n$`),
    )
  }
})

t.test('a node that does not answer in time is named, and no reason to stop', async (t) => {
  const own = { apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'sealane-system' } }
  const admin = new AnsweringAdmin([node('a'), own], { a: [{ phase: 'Pending' }] })
  const { problems, said } = await asked(admin)
  t.strictSame(problems, [])
  t.match(said, /node a was not checked in time: the check is not complete\n$/)
  t.ok(admin.done[0]?.startsWith('create Pod sealane-system/'), 'where its pull secrets are')
  t.strictSame(await admin.list('v1', 'Pod', {}), [], 'none is left')
})

t.test('a dry run makes no pods', async (t) => {
  const admin = new AnsweringAdmin([node('a')], { a: [ended] })
  t.strictSame(await asked(admin, true), { problems: [], said: '' })
  t.strictSame(admin.done, [])
})

t.test('the namespace of the pull secret is made first where there is none', async (t) => {
  const own = { apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'sealane-system' } }
  const init = { dryRun: true, clock: new FakeClock(), signal: new AbortController().signal, say: () => undefined }
  const named = question(REMOTE, { pullSecrets: ['key'] })
  const [absent = ''] = await imageProblems(new MemoryAdmin([node('a')]), named, init)
  t.match(absent, / kubectl create namespace sealane-system; kubectl --namespace sealane-system create secret /)
  const [present = ''] = await imageProblems(new MemoryAdmin([node('a'), own]), named, init)
  t.match(present, /create it with kubectl --namespace sealane-system create secret /)
})

t.test('what a person reads', async (t) => {
  const { signal } = new AbortController()
  const init = { dryRun: false, clock: new FakeClock(), signal, say: () => undefined }
  const error = await requireImage(new MemoryAdmin([node('a')]), question(LOCAL), init).catch((cause: unknown) => cause)
  t.ok(error instanceof UserError)
  t.match(error, {
    message: `context "c1" of kubeconfig: no image: ${LOCAL} is not on node a, and localhost is not a registry, so no node can pull it`,
    hint: /^use --image REGISTRY\/sealane:1, or continue with --force; nothing was changed\n/,
  })
})
