/** A node reports its own pods outside the pod CIDRs, also those behind no Service. All drivers are fakes. */
import t from 'tap'
import { eventually } from '../support/eventually.ts'
import { loopRuns } from './support/loop-runs.ts'
import { Machine } from './support/machine.ts'
import { podObject } from './support/pod-object.ts'
import { cluster } from './support/site.ts'

t.test('reported, kept over a restart, and taken back', async (t) => {
  const machine = new Machine(t)
  const { api } = machine
  const running = machine.start(t)
  machine.join()
  await machine.ready()
  const reported = (): string => (api.get('RouteAgent', 'worker')?.status?.podsOutside ?? []).join(' ')
  const reports = (want: string): Promise<unknown> => {
    const look = (): boolean => (machine.clock.jump(10_000), reported() === want)
    return eventually(look, { say: `reports ${want}` })
  }
  api.put(podObject('shop/inside', '10.42.1.5'))
  api.put(podObject('shop/host', '10.50.0.7', { spec: { nodeName: 'worker', hostNetwork: true } }))
  api.put(podObject('shop/ended', '10.50.0.8', { phase: 'Succeeded' }))
  api.put(podObject('shop/job', '10.50.0.9'))
  await reports('10.50.0.9')
  api.put(podObject('shop/job-2', '10.50.0.4'))
  api.put(podObject('shop/other', '10.60.0.4'))
  await reports('10.50.0.9 10.60.0.4')
  const writtenMs = (): number => Date.parse(api.get('RouteAgent', 'worker')?.status?.podsOutsideTime ?? '')
  const firstMs = writtenMs()
  t.ok(firstMs > 0)
  let passedMs = 0
  const again = (): boolean => {
    machine.clock.jump(30_000)
    passedMs += 30_000
    return writtenMs() !== firstMs
  }
  await eventually(again, { say: 'writes again' })
  t.ok(passedMs >= 120_000, `not in every round, but after minutes: ${passedMs} ms`)

  await running.stop()
  machine.start(t)
  await machine.ready()
  const runs = await loopRuns(machine.metrics, 'outside-pods')
  await eventually(
    async () => (machine.clock.jump(10_000), (await loopRuns(machine.metrics, 'outside-pods')) > runs + 1),
  )
  t.equal(reported(), '10.50.0.9 10.60.0.4', 'the same ones, although other pods have lower addresses')

  const milano = cluster('milano', 1, '244.0.0.0/16')
  api.put({ ...milano, spec: { ...milano.spec, podCIDRs: ['10.42.0.0/16', '10.50.0.0/16', '10.60.0.0/16'] } })
  await reports('')
  for (const field of ['podsOutside', 'podsOutsideTime'])
    t.notOk(Object.hasOwn(api.get('RouteAgent', 'worker')?.status ?? {}, field), field)
})
