/**
 * A gateway process that ends and is restarted, as in an update of its DaemonSet: the WireGuard device stays, and no
 * packet of a hundred a second is lost. The kernel tier runs this with the kernel's own WireGuard.
 */
import t from 'tap'
import {
  GatewayProcess,
  type Site,
  introduce,
  untilUp,
  withGateways,
  withSites,
} from '../gateway/support/netns-sites.ts'
import { MILANO, PARIS } from '../gateway/support/two-gateways.ts'
import { SLOWNESS, eventually } from '../support/eventually.ts'
import { netnsMissing } from '../support/netns.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

const skip = netnsMissing() ?? false
t.setTimeout(180_000 * SLOWNESS)

const LIMIT_SECONDS = 60 * SLOWNESS

t.test('restarts', { skip, timeout: 120_000 * SLOWNESS }, async (t) => {
  await withSites([MILANO, PARIS], temporaryFolder(t), async (sites) => {
    await withGateways(sites, async (left, right) => {
      let running = left
      try {
        for (const signal of ['SIGKILL', 'SIGTERM'] as const) {
          const calls = callFrom(sites[0])
          const began = performance.now()
          const before = running
          await before.stop(signal)
          await eventually(() => right.status?.connections[0]?.message !== '', {
            deadlineMs: 20_000,
            say: 'the silence is noticed',
          })
          t.equal(right.stateOf('milano'), 'up', `${signal}: the lane is up all the same: the kernel answers`)
          running = startedAnew(before, right, sites)
          await untilUp(running, 'paris')
          await eventually(() => right.status?.connections[0]?.message === '', {
            deadlineMs: 20_000,
            say: 'the process answers again',
          })
          // A fast machine restarts before a hundred calls are sent.
          await eventually(() => performance.now() - began > 3000, { say: 'calls went on for three seconds' })
          const { sent, received } = await calls.stop()
          t.ok(sent > 100, `${sent} were sent`)
          // The last packet may still be on its way.
          t.ok(received >= sent - 1, `${signal}: not one is lost: ${received} of ${sent} came back`)
        }
      } finally {
        await running.stop()
      }
    })
  })
})

/** Starts the gateway again with the objects that the API server has from it. */
function startedAnew(before: GatewayProcess, right: GatewayProcess, sites: readonly [Site, Site]): GatewayProcess {
  const again = new GatewayProcess(sites[0])
  for (const object of before.objects.values()) again.put(object)
  introduce({ process: again, site: sites[0] }, { process: right, site: sites[1] })
  return again
}

interface Calls {
  stop(): Promise<{ readonly sent: number; readonly received: number }>
}

/** Sends a hundred pings a second from a pod of milano to one of paris. */
function callFrom({ pod }: Site): Calls {
  const child = pod.spawn('ping', ['-n', '-i', '0.01', '-w', String(LIMIT_SECONDS), '244.1.0.5'])
  let output = ''
  child.stdout?.on('data', (chunk: Buffer) => (output += chunk.toString()))
  const ended = new Promise((resolve) => child.once('exit', resolve))
  return {
    stop: async () => {
      child.kill('SIGINT')
      await ended
      const counted = /(\d+) packets transmitted, (\d+) received/.exec(output)
      return { sent: Number(counted?.[1] ?? NaN), received: Number(counted?.[2] ?? NaN) }
    },
  }
}
