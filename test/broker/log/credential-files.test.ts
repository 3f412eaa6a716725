/** The credentials for an etcd are renewed while a broker runs. */
import { rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { CredentialFiles } from '../../../broker/store/etcd/client/etcd-client.ts'
import { testAuthority } from '../../etcd/support/certificates.ts'
import { messageOf } from '../../support/failure.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

t.test('each connection takes what is there, and half of a pair changes nothing', async (t) => {
  const folder = temporaryFolder(t)
  const at = (name: string): string => join(folder, name)
  const write = (name: string, text: string): void => writeFileSync(at(name), text, { mode: 0o600 })
  const paths = { ca: at('ca'), certificate: at('certificate'), key: at('key'), password: at('password') }
  t.match(await messageOf(() => new CredentialFiles(paths, 'broker')), /ca cannot be read/)
  const authority = await testAuthority()
  const pairs = await Promise.all([1, 2, 3, 4].map((i) => authority.issue(`CN=broker-${i}`)))
  const put = (i: number): void => {
    write('certificate', pairs[i]?.certificate ?? '')
    write('key', pairs[i]?.key ?? '')
  }
  write('ca', authority.ca)
  write('password', 'first\n')
  write('certificate', 'nonsense')
  write('key', 'nonsense')
  t.match(await messageOf(() => new CredentialFiles(paths, 'broker')), /certificate and its key cannot be used/)
  put(0)
  const files = new CredentialFiles(paths, 'broker')
  t.strictSame(files.login, { user: 'broker', password: 'first' })
  for (const i of [1, 2, 3]) {
    const before = files.tls
    write('certificate', pairs[i]?.certificate ?? '')
    t.strictSame(files.tls, before, 'the key is still that of before')
    put(i)
    t.strictSame(files.tls, { ca: authority.ca, ...pairs[i] })
    rmSync(at('key'))
    t.strictSame(files.tls, { ca: authority.ca, ...pairs[i] }, 'the new one is on its way')
    put(i)
    write('password', `later-${i}`)
    t.strictSame(files.login, { user: 'broker', password: `later-${i}` })
  }
  t.equal(new CredentialFiles(paths, undefined).login, undefined)
})
