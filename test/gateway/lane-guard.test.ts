/** The rules that close lanes: before the devices, for all of them, and gone after the last. */
import t from 'tap'
import { KernelError } from '../../kernel/errors.ts'
import { formatRule } from '../../kernel/route/format-ip.ts'
import { planLaneGuard } from '../../gateway/lanes/plan-lane-guard.ts'
import { membershipObject } from '../support/objects/cluster-objects.ts'
import { DUAL_MILANO } from './support/worlds.ts'
import { MILANO, PARIS, PARIS_GW, Stage } from './support/stage.ts'

t.test('one rule for each device on which packets arrive', async (t) => {
  const planned = [{ device: 'sealane0' }]
  t.strictSame(planLaneGuard({ own: MILANO, laneDevices: ['sealane0'] }, planned), [], 'all pods may be called')
  t.strictSame(planLaneGuard({ own: MILANO, exposure: 'pods', failClosed: true, laneDevices: [] }, planned), [])
  const closes = { own: DUAL_MILANO, exposure: 'nothing', laneDevices: ['sealane0', 'sealane3'] } as const
  t.strictSame(planLaneGuard(closes, planned), [], 'by default')
  const drops = planLaneGuard({ ...closes, failClosed: true }, planned)
  const closed = (ip: string, device: string): string[] => [
    `${ip} rule add priority 70 iif ${device} lookup 255 protocol 173`,
    `${ip} rule add priority 71 fwmark 0/0x2000 iif ${device} blackhole protocol 173`,
  ]
  t.strictSame(drops.map(formatRule), [
    ...['sealane0', 'sealane0-rx', 'sealane3', 'sealane3-rx'].flatMap((device) => closed('ip', device)),
    ...['sealane0', 'sealane3'].flatMap((device) => closed('ip -6', device)),
  ])
})

t.test('no lane without them, and none of them after the lanes', async (t) => {
  const stage = new Stage(t)
  const exposed = (phase: 'joined' | 'leaving', exposure: 'exports' | 'pods') =>
    membershipObject({ phase, exposure, clusterset: 'test' })
  stage.put(exposed('joined', 'exports'), PARIS, PARIS_GW)
  const addRule = stage.routes.addRule.bind(stage.routes)
  let isRefused = true
  stage.routes.addRule = (rule, ...rest) =>
    isRefused && rule.action === 'blackhole'
      ? Promise.reject(new KernelError('EPERM', 'ip rule add', 'operation not permitted'))
      : addRule(rule, ...rest)
  stage.start()
  await stage.until(() => stage.gateway()?.failure !== undefined, 'failure in the status')
  t.strictSame(stage.wireguard.deviceNames(), [], 'no lane')
  isRefused = false
  await stage.until(() => stage.wireguard.deviceNames().length > 0, 'the lane')
  const drops = (): number => stage.routes.toString().split('blackhole').length - 1
  t.equal(drops(), 2)

  const rule = (await stage.routes.rules()).find(({ action }) => action === 'blackhole')
  if (rule !== undefined) await stage.routes.deleteRule(rule)
  await stage.until(() => drops() === 2, 'put back')

  stage.put(exposed('joined', 'pods'))
  await stage.until(() => drops() === 0, 'the owner lets in all')
  stage.put(exposed('joined', 'exports'))
  await stage.until(() => drops() === 2, 'and closes again')

  const deleteDevice = stage.wireguard.deleteDevice.bind(stage.wireguard)
  const atDeletion: number[] = []
  stage.wireguard.deleteDevice = (...init) => {
    atDeletion.push(drops())
    return deleteDevice(...init)
  }
  stage.put(exposed('leaving', 'exports'))
  await stage.ended
  t.strictSame([atDeletion, drops()], [[2], 0], 'they go after the device')
})
