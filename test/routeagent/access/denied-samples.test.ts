/** What is kept and said of a refused packet. What the kernel logs: test/lanes/access.test.ts. */
import t, { type Test } from 'tap'
import { FakeNft } from '../../../kernel/fake/fake-nft.ts'
import { FakePacketLog } from '../../../kernel/fake/fake-packet-log.ts'
import { KernelError } from '../../../kernel/errors.ts'
import { LiveCache } from '../../../kubeapi/driver/kind-store.ts'
import { objectKey } from '../../../kubeapi/driver/object-key.ts'
import { NFLOG_GROUP } from '../../../model/kernel-ids.ts'
import type { EndpointSlice } from '../../../model/objects.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { DeniedSamples, MAX_DENIED_SAMPLES } from '../../../routeagent/access/denied-samples.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { eventually } from '../../support/eventually.ts'
import { ownSlice } from '../support/own-slice.ts'

function start(t: Test, packetLog = new FakePacketLog()) {
  const [clock, logger] = [new FakeClock(), new CapturingLogger()]
  const slices = new LiveCache<EndpointSlice>()
  for (const slice of [
    ownSlice('other', ['10.42.1.5']),
    ownSlice('web', ['10.42.1.5'], [{ protocol: 'TCP', port: 80 }]),
  ])
    slices.replace(objectKey(slice.metadata.name, slice.metadata.namespace), slice)
  const callers = new Map([['paris', ['244.1.0.0/16']]])
  let begun = 0
  const samples = new DeniedSamples({
    ...{ packetLog, slices, clock, logger, nfts: [new FakeNft(), new FakeNft({ family: 'ip6' })] },
    podAt: (address) => (address === '10.42.1.7' ? { namespace: 'bank', pod: 'job-1' } : undefined),
    callers: (family) => (family === 4 ? callers : undefined),
    onFollowing: () => (begun += 1),
  })
  const stopping = new AbortController()
  const ended = samples.run(stopping.signal)
  const stop = async (): Promise<void> => {
    stopping.abort()
    await ended
  }
  t.teardown(stop)
  return { packetLog, clock, logger, samples, stop, begun: () => begun }
}

const PACKET = {
  prefix: 'access-not-exported',
  source: '244.1.0.9',
  destination: '10.42.1.5',
  protocol: 'tcp',
  port: 80,
} as const

t.test('who called whom, at which port, and why', async (t) => {
  const { packetLog, samples, logger, stop, begun, clock } = start(t)
  await eventually(() => samples.isFollowing, { say: 'follows' })
  t.equal(begun(), 1)
  const log = (change: Partial<typeof PACKET> | object) => packetLog.log(NFLOG_GROUP, { ...PACKET, ...change })
  log({})
  log({ source: '192.0.2.1', destination: '10.42.1.9', protocol: 'icmp', port: undefined })
  log({ prefix: 'of another program' })
  log({ source: 'fd42::9', destination: 'fd42:1::5', port: 443 })
  log({ prefix: 'access-egress', source: '10.42.1.5', destination: '244.1.0.9' })
  log({ prefix: 'access-egress', source: '10.42.1.7', destination: '244.1.0.9' })
  const at = new Date(clock.now()).toISOString()
  const reason = 'access-not-exported'
  t.same(samples.list(), [
    {
      at,
      reason,
      from: { address: '244.1.0.9', cluster: 'paris' },
      to: { address: '10.42.1.5', namespace: 'shop', service: 'shop/web' },
      protocol: 'tcp',
      port: 80,
    },
    { at, reason, from: { address: '192.0.2.1' }, to: { address: '10.42.1.9' }, protocol: 'icmp' },
    { at, reason, from: { address: 'fd42::9' }, to: { address: 'fd42:1::5' }, protocol: 'tcp', port: 443 },
    {
      ...{ at, reason: 'access-egress', protocol: 'tcp', port: 80 },
      ...{
        from: { address: '10.42.1.5', namespace: 'shop', service: 'shop/other' },
        to: { address: '244.1.0.9', cluster: 'paris' },
      },
    },
    {
      ...{ at, reason: 'access-egress', protocol: 'tcp', port: 80 },
      from: { address: '10.42.1.7', namespace: 'bank', pod: 'job-1' },
      to: { address: '244.1.0.9', cluster: 'paris' },
    },
  ])
  t.equal(logger.lines.length, 5, 'one line for each')
  await stop()
  t.notOk(samples.isFollowing)
  t.notOk(log({}), 'the group is free')
})

t.test('floods and long times', async (t) => {
  const { packetLog, samples, logger, clock } = start(t)
  await eventually(() => samples.isFollowing, { say: 'follows' })
  for (let i = 0; i < 1000; i += 1) packetLog.log(NFLOG_GROUP, PACKET)
  t.equal(logger.lines.length, 10, 'at most ten a second, whoever logs')
  for (let second = 0; second < 30; second += 1) {
    await clock.advance(1000)
    for (let i = 0; i < 10; i += 1) packetLog.log(NFLOG_GROUP, { ...PACKET, port: 1000 + second })
  }
  t.equal(samples.list().length, MAX_DENIED_SAMPLES)
  t.equal(samples.list().at(-1)?.port, 1029, 'the last ones stay')
})

t.test('while an earlier process follows the log', async (t) => {
  const packetLog = new FakePacketLog()
  packetLog.failure = new KernelError('EPERM', 'follow nflog group', 'not permitted')
  const { samples, logger, clock } = start(t, packetLog)
  await eventually(() => logger.lines.length > 0, { say: 'said' })
  await clock.advance(5000)
  t.notOk(samples.isFollowing)
  t.equal(logger.lines.length, 1, 'once')
  packetLog.failure = undefined
  await eventually(
    async () => {
      await clock.advance(60_000)
      return samples.isFollowing
    },
    { say: 'follows' },
  )
})
