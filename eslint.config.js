import tseslint from 'typescript-eslint'

export default tseslint.config(
  { ignores: ['node_modules', '**/gen', '.tap', 'dist'] },
  ...tseslint.configs.strictTypeChecked,
  {
    languageOptions: { parserOptions: { project: './tsconfig.json', tsconfigRootDir: import.meta.dirname } },
    rules: {
      '@typescript-eslint/switch-exhaustiveness-check': 'error',
      '@typescript-eslint/consistent-type-imports': 'error',
      // What is imported for its types alone must not be loaded.
      '@typescript-eslint/no-import-type-side-effects': 'error',
      // Numbers in messages are what messages are for.
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true, allowBoolean: true }],
      // An arrow that calls a void function is the plain way to write a callback.
      '@typescript-eslint/no-confusing-void-expression': ['error', { ignoreArrowShorthand: true }],
      '@typescript-eslint/no-unused-vars': ['error', { argsIgnorePattern: '^_', varsIgnorePattern: '^_' }],
      'no-restricted-globals': [
        'error',
        { name: 'setTimeout', message: 'take a Clock (reconcile/clock.ts)' },
        { name: 'setInterval', message: 'take a Clock (reconcile/clock.ts)' },
      ],
      'no-restricted-properties': [
        'error',
        { object: 'Date', property: 'now', message: 'take a Clock (reconcile/clock.ts)' },
        { object: 'Math', property: 'random', message: 'take a Clock (reconcile/clock.ts)' },
        { object: 'process', property: 'exit', message: 'resolve or throw; runtime/run-process.ts sets the exit code' },
      ],
    },
  },
  {
    files: ['reconcile/clock.ts', 'runtime/run-process.ts', 'test/**', 'bench/**', 'demo/**'],
    rules: { 'no-restricted-globals': 'off', 'no-restricted-properties': 'off' },
  },
  {
    files: ['test/**'],
    rules: {
      // tap's assertions are promises only when the test awaits them.
      '@typescript-eslint/no-floating-promises': 'off',
      '@typescript-eslint/require-await': 'off',
      '@typescript-eslint/no-non-null-assertion': 'off',
    },
  },
  { files: ['*.js', 'bin/*'], extends: [tseslint.configs.disableTypeChecked] },
)
