/** Bytes over TCP to the DNS server that no correct client sends. */
import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { connect } from 'node:net'
import { askTcp, startDns } from '../dns/dns-server.ts'
import { query } from '../dns/wire.ts'
import { workedExamples } from '../dns/zone-fixture.ts'
import { attack } from './support/attack.ts'

const FORWARDED = query('elsewhere.example.')
const OURS = query('web.shop.svc.clusterset.local.')

await attack('dns-tcp-half-message', async (t) => {
  let asked = 0
  const upstream = createSocket('udp4', (bytes, { port, address }) => {
    asked += 1
    const answer = Buffer.from(bytes)
    answer.writeUInt16BE(0x8183, 2)
    upstream.send(answer, port, address)
  }).bind(0, '127.0.0.1')
  await once(upstream, 'listening')
  t.teardown(() => upstream.close())
  const { port } = await startDns(t, workedExamples(), { upstreams: [`127.0.0.1:${upstream.address().port}`] })
  for (const ending of ['end', 'resetAndDestroy'] as const) {
    const socket = connect(port, '127.0.0.1').on('error', () => undefined)
    await once(socket.resume(), 'connect')
    const length = Buffer.alloc(2)
    length.writeUInt16BE(FORWARDED.length)
    socket.write(Buffer.concat([length, FORWARDED, Buffer.from([0xff, 0xff])]))
    socket[ending]()
    await once(socket, 'close')
  }
  t.equal((await askTcp(port, [OURS])).length, 1, 'the next client is answered')
  t.ok(asked <= 2, `forwarded ${asked} times for two clients`)
})
