/** Packets followed by the hidden command in a pod: when it is ready, how it ends, and what it may answer. */
import t from 'tap'
import { END_LINE, READY_LINE, agentPlace, followInPod } from '../../cli/status/path/follow-in-pod.ts'
import type { ProbeTask } from '../../explain/path/packet-probe.ts'
import type { CommandResult, PodCommand } from '../../kubeapi/kube/http/pod-exec.ts'
import { FakeClock } from '../../reconcile/fake-clock.ts'

const TASK: ProbeTask = {
  family: 4,
  protocol: 'tcp',
  ...{ sourcePort: 21_000, sources: [], destinations: ['10.0.0.1'], ports: [80], seconds: 5 },
}
const REPORT = { at: '2026-11-25T10:00:00Z', lines: [], leftOut: 2, counters: [] }
const signal = new AbortController().signal

function start(exec: (command: PodCommand) => Promise<CommandResult>) {
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
