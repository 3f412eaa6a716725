/** The processes that a test file has started end with it, also when the file exceeds its time limit. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { eventually } from '../support/eventually.ts'
import { freePort } from '../support/free-port.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

t.test('a broker does not outlive the file that has started it', async (t) => {
  const folder = temporaryFolder(t)
  const [listen, status] = [`127.0.0.1:${await freePort()}`, `127.0.0.1:${await freePort()}`]
  const args = [
    ...['broker', 'serve', '--state', join(folder, 'state'), '--clusterset', 'demo', '--listen', listen],
    ...['--advertise', listen, '--status-listen', status],
  ]
  const file = join(folder, 'file.ts')
  const from = JSON.stringify(join(import.meta.dirname, 'run-cli.ts'))
  const never = 'setInterval(() => undefined, 1000)'
  writeFileSync(
    file,
    `import { spawnServing } from ${from}\nspawnServing({ teardown() {} }, ${JSON.stringify(args)})\n${never}\n`,
  )
  const isUp = async (): Promise<boolean> => (await fetch(`http://${status}/healthz`)).ok
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) {
    const parent = spawn(process.execPath, [file], { stdio: 'ignore' })
    t.teardown(() => parent.kill('SIGKILL'))
    await eventually(isUp, { deadlineMs: 30_000, say: 'it serves' })
    parent.kill(signal)
    await once(parent, 'close')
    await eventually(async () => !(await isUp().catch(() => false)), { say: `${signal}: it has gone` })
  }
  t.pass()
})
