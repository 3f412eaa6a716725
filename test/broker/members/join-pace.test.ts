/** The rate limit on joins with one token. */
import t from 'tap'
import { createKey } from '../../../protocol/identity/keys.ts'
import { createCsr } from '../../../protocol/identity/x509.ts'
import { join_, startBroker } from '../support/harness.ts'
t.test('a join that does not spend its token is good for few more', async (t) => {
  const harness = await startBroker(t)
  const csr = await createCsr(createKey())
  const { text } = await harness.tokens.create({})
  for (let i = 0; i < 21; i += 1) await join_(harness, 'milano', { token: text, csr })
  await t.rejects(join_(harness, 'milano', { token: text, csr }), {
    code: 'ResourceExhausted',
    message: 'token: too many joins that used it were refused or repeated: try again in 3 s',
  })
  await harness.clock.advance(3000)
  await join_(harness, 'milano', { token: text, csr })
  await join_(harness, 'paris')
})
