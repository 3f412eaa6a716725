/** A file has either its old or its new content, and a failed write leaves nothing behind. */
import { readFileSync, readdirSync, statSync, utimesSync, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import t from 'tap'
import {
  TEMPORARY_NAME,
  createFile,
  removeTemporaries,
  replaceFile,
  temporaryPath,
  writeTemporary,
} from '../../runtime/atomic-file.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

t.test('a file is replaced with its mode, and made where there is none', async (t) => {
  const folder = temporaryFolder(t)
  const path = join(folder, 'key')
  await replaceFile(path, 'old')
  t.equal(statSync(path).mode & 0o777, 0o600)
  await replaceFile(path, Buffer.from('new'), 0o640)
  t.equal(readFileSync(path, 'utf8'), 'new')
  t.equal(statSync(path).mode & 0o777, 0o640)
  t.strictSame(readdirSync(folder), ['key'])
})

t.test('the first of several writers creates it', async (t) => {
  const folder = temporaryFolder(t)
  const path = join(folder, 'key')
  const made = await Promise.all(['a', 'b', 'c'].map((text) => createFile(path, text)))
  t.equal(made.filter(Boolean).length, 1)
  const text = readFileSync(path, 'utf8')
  t.equal(await createFile(path, 'later'), false)
  t.equal(readFileSync(path, 'utf8'), text)
  t.strictSame(readdirSync(folder), ['key'])
})

t.test('what fails leaves the old file and nothing beside it', async (t) => {
  const folder = temporaryFolder(t)
  writeFileSync(join(folder, 'file'), 'old')
  await t.rejects(replaceFile(join(folder, 'absent', 'file'), 'x'), { code: 'ENOENT' })
  await t.rejects(replaceFile(folder, 'x'), 'a folder is no file')
  await t.rejects(createFile(join(folder, 'file', 'below'), 'x'), { code: 'ENOTDIR' })
  t.strictSame(readdirSync(folder), ['file'])
  t.equal(readFileSync(join(folder, 'file'), 'utf8'), 'old')
})

t.test('what a killed process left of the same file goes with the next write, and nothing else', async (t) => {
  const folder = temporaryFolder(t)
  const path = join(folder, 'ca.key')
  const [old, young, other] = [temporaryPath(path), temporaryPath(path), temporaryPath(join(folder, 'ca.crt'))]
  const tail = join(folder, '.ca.key.notes.tmp')
  for (const file of [old, young, other, tail]) writeFileSync(file, 'x')
  const before = new Date(Date.now() - 7_200_000)
  for (const file of [old, other, tail]) utimesSync(file, before, before)
  await replaceFile(path, 'key')
  t.strictSame(readdirSync(folder).sort(), ['ca.key', ...[young, other, tail].map((file) => basename(file))].sort())
})

t.test('a process that starts removes what killed ones have left', async (t) => {
  const folder = temporaryFolder(t)
  const [old, young] = [temporaryPath(join(folder, 'ca.key')), temporaryPath(join(folder, 'ca.0123.key'))]
  for (const file of [old, young, join(folder, 'ca.key'), join(folder, '.notes.tmp')]) writeFileSync(file, 'x')
  const before = new Date(Date.now() - 120_000)
  for (const file of [old, join(folder, '.notes.tmp')]) utimesSync(file, before, before)
  await removeTemporaries(folder, Date.now())
  t.strictSame(readdirSync(folder).sort(), ['.notes.tmp', basename(young), 'ca.key'].sort())
  await removeTemporaries(join(folder, 'absent'), Date.now())
})

t.test('temporary names are hidden, known again, and short enough for a long name', async (t) => {
  const folder = temporaryFolder(t)
  const path = join(folder, 'x'.repeat(255))
  t.match(temporaryPath(path).slice(folder.length + 1), TEMPORARY_NAME)
  const aside = await writeTemporary(path, 'x', 0o600)
  t.match(readdirSync(folder)[0], TEMPORARY_NAME)
  t.equal(readFileSync(aside, 'utf8'), 'x')
  await replaceFile(path, 'y')
  t.equal(readFileSync(path, 'utf8'), 'y')
})
