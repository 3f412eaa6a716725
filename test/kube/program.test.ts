/** Programs that a test starts end with it, however it ends. */
import { spawn } from 'node:child_process'
import { existsSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { eventually } from '../support/eventually.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { makeProgram } from './support/program.ts'

const shell = (directory: string, script: string, name = 'sh') =>
  makeProgram({ name, path: '/bin/sh', args: ['-c', script], directory })

t.test('it is started, killed and started again', async (t) => {
  const program = shell(temporaryFolder(t), 'echo up; exec sleep 600')
  t.equal(program.pid, undefined)
  program.start()
  const { pid } = program
  program.start()
  t.equal(program.pid, pid, 'a second start changes nothing')
  await eventually(() => program.log() === 'up\n')
  await program.kill()
  t.same([program.pid, program.failure, isAlive(pid)], [undefined, undefined, false])
  await program.kill()
  program.start()
  await eventually(() => program.log() === 'up\nup\n')
  await program.kill('SIGTERM')
})

t.test('how it ended by itself is told', async (t) => {
  const folder = temporaryFolder(t)
  for (const [script, want] of [
    ['exit 3', 'ended with 3'],
    ['kill -TERM $$', 'ended by SIGTERM'],
  ] as const) {
    const program = shell(folder, script)
    program.start()
    t.equal(await eventually(() => program.failure), want)
  }
  const missing = makeProgram({ name: 'missing', path: '/no/such/program', args: [], directory: folder })
  missing.start()
  t.match(await eventually(() => missing.failure), /^ended with 127/)
  t.match(missing.log(), /no\/such\/program/)
})

for (const how of ['SIGKILL', 'SIGTERM', 'an exit', 'an exception'] as const) {
  t.test(`it ends when the test's process ends by ${how}`, async (t) => {
    const folder = temporaryFolder(t)
    const end = { 'an exit': 'process.exit(0)', 'an exception': 'throw new Error("oh")' }[how as string]
    const source = `
      import { writeFileSync } from 'node:fs'
      import { makeProgram } from '${join(import.meta.dirname, 'support/program.ts')}'
      const program = makeProgram({ name: 'p', path: '/bin/sleep', args: ['600'], directory: '${folder}' })
      program.start()
      writeFileSync('${folder}/pid', String(program.pid))
      process.once('message', () => { ${end ?? ''} })
    `
    writeFileSync(join(folder, 'main.ts'), source)
    const child = spawn(process.execPath, [join(folder, 'main.ts')], { stdio: ['ignore', 'ignore', 'ignore', 'ipc'] })
    // The file is empty between its creation and its first write.
    const pid = await eventually(() => Number(readFileSync(join(folder, 'pid'))) || undefined)
    t.ok(isAlive(pid))
    if (how === 'SIGKILL' || how === 'SIGTERM') child.kill(how)
    else child.send('end')
    await eventually(() => !isAlive(pid))
  })
}

t.test('its log stays bounded, and keeps the end', async (t) => {
  const folder = temporaryFolder(t)
  // This is the smallest log that is cut: a cut before the last byte would leave the rest in the file.
  const program = shell(folder, 'head -c 16777216 /dev/zero; while [ ! -e go ]; do sleep 0.1; done; echo after', 'loud')
  program.start()
  await eventually(() => existsSync(join(folder, 'loud.log.old')), { deadlineMs: 20_000 })
  await eventually(() => statSync(join(folder, 'loud.log')).size === 0)
  writeFileSync(join(folder, 'go'), '')
  await eventually(() => program.log() === 'after\n')
  t.ok(statSync(join(folder, 'loud.log')).size < 100, 'it goes on at the start of the file')
})

/** Whether the process lives; one that has ended without being waited for does not. */
function isAlive(pid: number | undefined): boolean {
  try {
    return !/^State:\s+[ZX]/m.test(readFileSync(`/proc/${pid ?? 0}/status`, 'utf8'))
  } catch {
    return false
  }
}
