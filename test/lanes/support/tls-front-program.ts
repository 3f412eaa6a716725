/** Ends TLS in front of a plain server: `tls-front-program.ts PORT PLAIN_PORT KEY_FILE`. Its key is that of the file. */
import { createPrivateKey } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { connect } from 'node:net'
import { createServer } from 'node:tls'
import { certificateToPem } from '../../../protocol/identity/certificates.ts'
import { createKey } from '../../../protocol/identity/keys.ts'
import { createCa, createServerCertificate } from '../../../protocol/identity/x509.ts'
import { SystemClock } from '../../../reconcile/clock.ts'

const [port = '', plain = '', file = ''] = process.argv.slice(2)
const key = readFileSync(file, 'utf8')
const nowMs = new SystemClock().now()
const ca = await createCa({ clusterset: 'front', key: createKey(), nowMs })
const init = { clusterset: 'front', key: createPrivateKey(key), nowMs }
const { certificate } = await createServerCertificate(ca, init)

createServer({ key, cert: certificateToPem(certificate) }, (socket) => {
  const far = connect({ host: '127.0.0.1', port: Number(plain) })
  for (const [one, other] of [
    [socket, far],
    [far, socket],
  ] as const) {
    one.on('error', () => other.destroy())
    one.once('close', () => other.destroy())
  }
  socket.pipe(far).pipe(socket)
}).listen(Number(port), '0.0.0.0', () => process.stdout.write('front listens\n'))
