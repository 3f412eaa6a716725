/**
 * The members of a broker that loses its connection to etcd move to a broker that still has one.
 *
 *   members ─► broker 0 ─X─► etcd (three members)
 *        └ ─ ► broker 1 ───┘
 */
import { join } from 'node:path'
import t from 'tap'
import { anExport } from '../broker/support/harness.ts'
import { TlsMember } from '../broker/support/tls-member.ts'
import { LoopbackBroker } from '../cli/loopback-broker.ts'
import { eventually } from '../support/eventually.ts'
import { freePort } from '../support/free-port.ts'
import { silentProxy } from '../support/silent-proxy.ts'
import { startEtcdCluster } from './support/etcd-cluster.ts'

t.setTimeout(180_000)

t.test('who only listens hears of what others publish all the same', async (t) => {
  const cluster = await startEtcdCluster(t)
  const proxies = await Promise.all(cluster.members.map(({ port }) => silentProxy(t, { host: '127.0.0.1', port })))
  const advertise = [`127.0.0.1:${await freePort()}`, `127.0.0.1:${await freePort()}`]
  const at = (name: string): string => join(cluster.folder, name)
  const start = (i: 0 | 1, ports: readonly { readonly port: number }[]): Promise<LoopbackBroker> => {
    const url = `etcd://${ports.map(({ port }) => `127.0.0.1:${port}`).join(',')}/sealane`
    const files = { caFile: at('ca.crt'), certificateFile: at('client.crt'), keyFile: at('client.key') }
    return LoopbackBroker.start(t, { listen: advertise[i]!, advertise, store: { url, ...files } })
  }
  const cutOff = await start(0, proxies)
  // All members connect to this broker while it is the only one.
  const members: TlsMember[] = []
  for (const id of ['milano', 'paris', 'oslo', 'roma']) members.push(await TlsMember.join(t, cutOff.state, id))
  const [milano, ...listeners] = members as [TlsMember, ...TlsMember[]]
  milano.publish(anExport('before'))
  for (const one of listeners) await eventually(one.has('milano/ServiceExport/shop/before'), { deadlineMs: 30_000 })
  const other = await start(1, cluster.members)
  for (const proxy of proxies) proxy.silence(true)
  milano.publish(anExport('before'), anExport('after'))
  for (const one of listeners)
    await eventually(one.has('milano/ServiceExport/shop/after'), { deadlineMs: 60_000, say: 'a listener hears of it' })
  const said = cutOff.logger.lines.map(({ message }) => message)
  t.ok(said.some((message) => message.startsWith('this broker has no connection to the store')))
  t.notOk(other.logger.lines.some(({ message }) => message.startsWith('this broker has no connection')))

  for (const proxy of proxies) {
    proxy.cut()
    proxy.listen()
  }
  await eventually(() => cutOff.logger.lines.some(({ message }) => message === 'the store answers again'), {
    deadlineMs: 60_000,
  })
  await other.stop()
  milano.publish(anExport('again'))
  for (const one of listeners)
    await eventually(one.has('milano/ServiceExport/shop/again'), { deadlineMs: 60_000, say: 'and comes back' })
})
