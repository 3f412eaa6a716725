/** Checks whether a mutant type-checks: `npm run types` finds one that does not, so it says nothing about the tests. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import ts from 'typescript'

/**
 * Returns a check of one file with another text: its own syntax and types, by the project's tsconfig.json. Files that
 * import it are not checked again, and an unused name is no error, because such a mutant runs.
 */
export function typeCheck(root: string, files: readonly string[]): (file: string, text: string) => boolean {
  const config = ts.readConfigFile(join(root, 'tsconfig.json'), (path) => readFileSync(path, 'utf8')) as {
    readonly config: unknown
  }
  const { options } = ts.parseJsonConfigFileContent(
    { ...(config.config as object), include: [], files: [] },
    ts.sys,
    root,
  )
  const changed = new Map<string, { readonly text: string; readonly version: number }>()
  let version = 0
  const service = ts.createLanguageService({
    getCompilationSettings: () => ({ ...options, noUnusedLocals: false, noUnusedParameters: false }),
    getCurrentDirectory: () => root,
    getDefaultLibFileName: (settings) => ts.getDefaultLibFilePath(settings),
    getScriptFileNames: () => files.map((file) => join(root, file)),
    getScriptVersion: (path) => String(changed.get(path)?.version ?? 0),
    getScriptSnapshot: (path) => {
      const text = changed.get(path)?.text ?? ts.sys.readFile(path)
      return text === undefined ? undefined : ts.ScriptSnapshot.fromString(text)
    },
    fileExists: (path) => ts.sys.fileExists(path),
    readFile: (path) => ts.sys.readFile(path),
    readDirectory: (...args) => ts.sys.readDirectory(...args),
    directoryExists: (path) => ts.sys.directoryExists(path),
    getDirectories: (path) => ts.sys.getDirectories(path),
  })
  return (file, text) => {
    const path = join(root, file)
    version += 1
    changed.set(path, { text, version })
    try {
      return service.getSyntacticDiagnostics(path).length === 0 && service.getSemanticDiagnostics(path).length === 0
    } finally {
      changed.delete(path)
    }
  }
}
