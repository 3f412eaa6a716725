/** A gateway process that is killed and restarted, with a long delay between the gateways. */
import t, { type Test } from 'tap'
import type { Gateway } from '../../model/objects.ts'
import { GatewayProcess, introduce, untilUp } from '../gateway/support/netns-sites.ts'
import type { Running } from '../gateway/support/two-gateways.ts'
import { eventually } from '../support/eventually.ts'
import { attack } from './support/attack.ts'
import { withFarPath } from './support/far-path.ts'

t.setTimeout(240_000)

await attack('restart-at-250-ms', (t) => withFarPath(t, 250, (milano, paris) => killed(t, milano, paris)))
await attack('restart-at-500-ms', (t) => withFarPath(t, 500, (milano, paris) => killed(t, milano, paris)))

async function killed(t: Test, milano: Running, paris: Running): Promise<void> {
  const states: string[] = []
  paris.process.onObject((object) => {
    if (object.kind === 'Gateway') states.push(...statesOf(object))
  })
  states.length = 0
  const calls = milano.site.pod.exec('ping', ['-n', '-c', '160', '-i', '0.05', '-W', '3', '244.1.0.5'])
  await milano.process.stop('SIGKILL')
  await eventually(() => paris.process.status?.connections[0]?.message !== '', {
    deadlineMs: 20_000,
    say: 'the silence is noticed',
  })
  const before = milano.process
  milano.process = new GatewayProcess(milano.site)
  for (const object of before.objects.values()) milano.process.put(object)
  introduce(milano, paris)
  milano.process.onObject((object) => {
    if (object.kind === 'Gateway') states.push(...statesOf(object))
  })
  await untilUp(milano.process, 'paris')
  await eventually(() => paris.process.status?.connections[0]?.message === '', {
    deadlineMs: 20_000,
    say: 'the process answers again',
  })
  t.match(await calls, '160 packets transmitted, 160 received', 'eight seconds of calls, and not one is lost')
  t.strictSame([...new Set(states)], ['up'], 'neither end ever said anything but up')
}

function statesOf({ status }: Gateway): string[] {
  return (status?.connections ?? []).map(({ state }) => state)
}
