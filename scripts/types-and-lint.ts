/**
 * Types and lint from one reading of the sources: most of either is to find out the types, and apart they find them out
 * twice. Says what `tsc -p .` and `eslint .` say; ends with 1 when one of them would. What was found good is not read
 * for errors again while nothing has changed.
 */
import { join } from 'node:path'
import { ESLint } from 'eslint'
import ts from 'typescript'
import { contentKey, isKnownGood, noteGood } from './known-good.ts'

const root = join(import.meta.dirname, '..')

function readProgram(): ts.Program {
  const host: ts.ParseConfigFileHost = {
    ...ts.sys,
    onUnRecoverableConfigFileDiagnostic: (found) => {
      throw new Error(format([found]))
    },
  }
  const config = ts.getParsedCommandLineOfConfigFile(join(root, 'tsconfig.json'), {}, host)
  if (config === undefined) throw new Error('tsconfig.json cannot be read')
  if (config.errors.length > 0) throw new Error(format(config.errors))
  return ts.createProgram({ rootNames: config.fileNames, options: config.options })
}

function format(found: readonly ts.Diagnostic[]): string {
  const host = { getCurrentDirectory: () => root, getCanonicalFileName: (name: string) => name, getNewLine: () => '\n' }
  return ts.formatDiagnostics(found, host)
}

async function lint(program: ts.Program): Promise<{ readonly ok: boolean; readonly text: string }> {
  const parserOptions = { project: null, programs: [program] }
  const eslint = new ESLint({ cwd: root, overrideConfig: [{ files: ['**/*.ts'], languageOptions: { parserOptions } }] })
  const results = await eslint.lintFiles(['.'])
  const formatter = await eslint.loadFormatter('stylish')
  return { ok: results.every(({ errorCount }) => errorCount === 0), text: await formatter.format(results) }
}

async function validate(program: ts.Program): Promise<boolean> {
  const found = ts.getPreEmitDiagnostics(program)
  process.stdout.write(format(found))
  const { ok, text } = await lint(program)
  process.stdout.write(text)
  return ok && found.length === 0
}

const program = readProgram()
const key = contentKey(program)
if (!isKnownGood(key)) {
  if (await validate(program)) noteGood(key)
  else process.exitCode = 1
}
