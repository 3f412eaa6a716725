/**
 * Types and lint from one reading of the sources: most of either is to find out the types, and apart they find them out
 * twice. Says what `tsc -p .` and `eslint .` say; ends with 1 when one of them would.
 */
import { join } from 'node:path'
import { ESLint } from 'eslint'
import ts from 'typescript'

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

const program = readProgram()
const found = ts.getPreEmitDiagnostics(program)
process.stdout.write(format(found))
const { ok, text } = await lint(program)
process.stdout.write(text)
process.exitCode = ok && found.length === 0 ? 0 : 1
