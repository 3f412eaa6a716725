/** Packets followed by the hidden command in a pod: when it is ready, how it ends, and what it may answer. */
import { setImmediate } from 'node:timers/promises'
import t from 'tap'
import { END_LINE, READY_LINE, agentPlace, followInPod, withProbePod } from '../../cli/status/path/follow-in-pod.ts'
import { PROBE_LABEL, PROBE_LABEL_VALUE, RUN_LABEL, UNTIL_ANNOTATION } from '../../cli/status/verify/plan-objects.ts'
import type { ProbeTask } from '../../explain/path/packet-probe.ts'
import type { ManifestObject } from '../../install/values/manifest.ts'
import type { ObjectRef } from '../../kubeapi/kube/kinds.ts'
import type { CommandResult, PodCommand } from '../../kubeapi/kube/http/pod-exec.ts'
import { FakeClock } from '../../reconcile/fake-clock.ts'
import { FastClock } from '../support/fast-clock.ts'
import { MemoryAdmin } from '../support/memory-admin.ts'

const TASK: ProbeTask = {
  family: 4,
  protocol: 'tcp',
  ...{ sourcePort: 21_000, sources: [], destinations: ['10.0.0.1'], ports: [80], seconds: 5 },
}
const REPORT = { at: '2026-11-25T10:00:00Z', lines: [], leftOut: 2, counters: [] }
const signal = new AbortController().signal

function start(exec: (command: PodCommand, signal: AbortSignal) => Promise<CommandResult>) {
  const clock = new FakeClock()
  return { clock, ...followInPod({ exec }, agentPlace('sealane-routeagent-0'), TASK, { clock, signal }) }
}

const OK = { status: 0, stdout: '', stderr: '' }

t.test('it follows until it is ended', async (t) => {
  let asked: PodCommand | undefined
  const { ready, end, report } = start(async (command) => {
    asked = command
    command.onStdout?.(Buffer.from(`${READY_LINE}\n`))
    const heard: string[] = []
    for await (const part of command.input ?? []) heard.push(part.toString())
    t.same(heard, [`${END_LINE}\n`])
    const text = `${JSON.stringify(REPORT)}\n`
    for (const part of [text.slice(0, 9), text.slice(9)]) command.onStdout?.(Buffer.from(part))
    return OK
  })
  await ready
  end()
  t.same(await report, REPORT)
  t.match(asked, { namespace: 'sealane-system', pod: 'sealane-routeagent-0', container: 'routeagent' })
  t.same(asked?.command.slice(0, 3), ['sealane', 'probe', 'packets'])
  t.same(JSON.parse(asked?.command[3] ?? ''), TASK)
})

t.test('its first line comes in pieces', async (t) => {
  const { ready, end, report } = start(async (command) => {
    await setImmediate()
    for (const part of ['re', 'ad', 'y\n']) command.onStdout?.(Buffer.from(part))
    // It is ready before it ends, and so is the follower.
    await ready
    end()
    command.onStdout?.(Buffer.from(JSON.stringify(REPORT)))
    return OK
  })
  t.same(await report, REPORT)
})

t.test('it ends before the packets are sent', async (t) => {
  const { report } = start((command) => {
    command.onStdout?.(Buffer.from(`${READY_LINE}\n${JSON.stringify(REPORT)}`))
    return Promise.resolve(OK)
  })
  await t.rejects(report, { message: /ended before all packets were sent/ })
})

t.test('it prints without end', async (t) => {
  let [sent, isAborted] = [0, false]
  const { report } = start(async (command, stop) => {
    command.onStdout?.(Buffer.from(`${READY_LINE}\n`))
    for (; sent < 64 && !stop.aborted; sent += 1) command.onStdout?.(Buffer.alloc(1 << 20, 'x'))
    isAborted = stop.aborted
    return new Promise(() => undefined)
  })
  await t.rejects(report, { message: 'the command in pod sealane-routeagent-0 printed more than 4 MiB' })
  t.ok(isAborted, 'the command is ended')
  t.ok(sent <= 5, `${sent} MiB`)
})

t.test('it cannot begin, does not begin in time, or says something else', async (t) => {
  const old = start(() => Promise.resolve({ ...OK, status: 2, stderr: "sealane: unknown command 'packets'\nsee" }))
  await t.rejects(old.ready, { message: /pod sealane-routeagent-0 ended with 2: sealane: unknown command 'packets'$/ })
  await t.rejects(old.report, { message: /ended with 2/ })
  const refused = start(() => Promise.reject(new Error('403')))
  await t.rejects(refused.ready, { message: '403' })
  const slow = start(() => new Promise(() => undefined))
  const late = t.rejects(slow.ready, { message: 'no answer within 8 s' })
  await slow.clock.advance(8000)
  await late
  const lying = start((command) => {
    command.onStdout?.(Buffer.from(`${READY_LINE}\n{"lines":[{"rule":"x"}]}\n`))
    return Promise.resolve(OK)
  })
  await lying.ready
  await t.rejects(lying.report, { message: /the report of a probe: expected JSON/ })
})

/** A member whose pods run at once, and take two looks to end. */
class SlowToEnd extends MemoryAdmin {
  readonly #looks = new Map<string, number>()

  override apply(given: ManifestObject, options: { readonly dryRun: boolean }) {
    const conditions = [{ type: 'Ready', status: 'True' }]
    const status = { phase: 'Running', podIPs: [{ ip: '10.42.1.9' }], conditions }
    return super.apply(given.kind === 'Pod' ? { ...given, status } : given, options)
  }

  override async remove(ref: ObjectRef): Promise<boolean> {
    const found = await super.get(ref)
    if (found === undefined) return false
    this.put({ ...found, metadata: { ...found.metadata, deletionTimestamp: '2026-11-25T10:00:00Z' } } as ManifestObject)
    this.#looks.set(ref.name, 2)
    return true
  }

  override replace(ref: ObjectRef, _before: unknown, after: ManifestObject | undefined): Promise<boolean> {
    if (after !== undefined) throw new Error('nothing is replaced')
    return this.remove(ref)
  }

  override async get(ref: ObjectRef): Promise<ManifestObject | undefined> {
    const left = this.#looks.get(ref.name)
    if (left !== undefined) this.#looks.set(ref.name, left - 1)
    if (left === 0) {
      this.#looks.delete(ref.name)
      await super.remove(ref)
    }
    return super.get(ref)
  }
}

function object(apiVersion: string, kind: string, name: string, spec: object, namespace?: string): ManifestObject {
  return { apiVersion, kind, metadata: { name, ...(namespace === undefined ? {} : { namespace }) }, spec }
}

function namespaceWith(...pods: readonly ManifestObject[]): SlowToEnd {
  const template = { spec: { containers: [{ image: 'sealane:1' }] } }
  return new SlowToEnd([
    object('sealane.io/v1alpha1', 'Membership', 'self', { clusterId: 'milano', exposure: 'exports' }),
    object('sealane.io/v1alpha1', 'Cluster', 'milano', { id: 'milano', podCIDRs: ['10.42.0.0/16'], globalCIDRs: [] }),
    object('apps/v1', 'Deployment', 'sealane-agent', { template }, 'sealane-system'),
    object('v1', 'Namespace', 'shop', {}),
    ...pods,
  ])
}

function probePod(name: string, run: string, until: string, phase: string): ManifestObject {
  const labels = { [PROBE_LABEL]: PROBE_LABEL_VALUE, [RUN_LABEL]: run }
  const metadata = { name, namespace: 'shop', labels, annotations: { [UNTIL_ANNOTATION]: until } }
  return { apiVersion: 'v1', kind: 'Pod', metadata, status: { phase } }
}

function inPod(admin: SlowToEnd, said: string[] = []) {
  const init = { namespace: 'shop', node: 'w0', run: 'a'.repeat(16), clock: new FastClock(100) }
  const say = (text: string): void => void said.push(text)
  return withProbePod(admin, { ...init, say }, signal, ({ addresses }) => Promise.resolve(addresses))
}

const CLIENT = 'sealane-probe-client'
const LATER = '2999-01-01T00:00:00Z'

t.test('a probe pod is made again and again, also after a run that was killed', async (t) => {
  const rows: readonly (readonly [string, readonly ManifestObject[]])[] = [
    ['its time has passed', [probePod(CLIENT, 'b', '2020-01-01T00:00:00Z', 'Failed')]],
    ['its pod has ended', [probePod(CLIENT, 'b', LATER, 'Failed')]],
  ]
  for (const [name, pods] of rows) {
    const admin = namespaceWith(...pods)
    const said: string[] = []
    for (let i = 0; i < 2; i += 1) t.same(await inPod(admin, said), ['10.42.1.9'], `${name}, ${i}`)
    t.notMatch(said.join(''), /not removed/)
    t.same(await admin.list('v1', 'Pod', { namespace: 'shop' }), [], 'nothing is left')
  }
})

t.test('who lacks a right of the probe pod makes none', async (t) => {
  for (const right of ['create pods', 'delete pods', 'get pods/exec']) {
    const admin = namespaceWith(probePod(CLIENT, 'b', '2020-01-01T00:00:00Z', 'Failed'))
    admin.denied.add(right)
    await t.rejects(inPod(admin), { name: 'UserError', message: new RegExp(`may not ${right} in namespace shop$`) })
    t.same(admin.done, [], right)
  }
})

t.test('a run that goes on keeps its namespace', async (t) => {
  const admin = namespaceWith(probePod(CLIENT, 'b', LATER, 'Running'), probePod('server', 'b', LATER, 'Failed'))
  await t.rejects(inPod(admin), { message: /another run uses namespace shop/ })
  t.equal((await admin.list('v1', 'Pod', { namespace: 'shop' })).length, 2)
})
