"""Logs of changes of databases (CDC): the framework of the sources that read one.

A source brings three things: the state of a table, with its position in the log (`reader.TableState`); its
stream of a table (`stream.LogStream` beside its own); and a reader of the log (`reader.LogReader`). The read
is the same for all (`read`), and so are the files of changes (`changes`).

**After any interruption a table has what the server has**, or a sync has said what not. The steps of the
argument, and the tests of each:

1. **Rows and state are one commit** of the table, since the states of the streams are independent
   (`reader.LogState`): a read goes on exactly after what the table has, and each table leaves out what it has
   already. `tests/connectors/cdc/test_third_log.py::test_each_change_is_appended_once`,
   `test_tables_equal_the_files_after_kills_and_a_workload`, and the tests of this name of each source.
2. **What a snapshot shows, and what the log then tells, is the same set of rows.** The position of the table
   is taken before its rows, so that nothing is missing. What comes twice has its place by the number of a
   row: a table keeps the row of a key with the greatest, and those of the changes that a snapshot does not
   show are greater than its own (`reader.Snapshot`).
   `test_a_rest_of_a_snapshot_has_the_numbers_of_the_first_part`,
   `tests/connectors/postgres/test_log_state.py`.
3. **A row that is gone is deleted:** by its delete; by that of its former key
   (`test_a_change_of_a_key_deletes_the_old_one`); by a truncation, which stands for the deletes of all rows
   with a number that is not greater (`test_a_truncated_table_keeps_the_rows_that_come_after`). A table that
   is read in full again has one after its rows (`test_a_reset_table_loses_the_rows_that_are_gone`).
4. **The log is the same.** Each reader proves it before it reads, and fails if it cannot
   (`test_states_of_another_log_are_refused`,
   `test_a_log_that_was_removed_is_an_error_of_the_tables_that_need_it`).
5. **The server forgets only what all tables have**
   (`test_changes_stay_in_the_log_until_all_tables_have_them`).
6. **A table that cannot be read fails alone**, with its state as it was
   (`test_a_table_that_cannot_be_read_fails_alone_until_it_is_reset`).
7. **The objects are the same.** The logs tell different things of tables and columns that change, so each
   source states how it knows them: `connectors.postgres.log.forms`, `connectors.mysql.log.statements`. Values
   on one side alone are warnings (`test_columns_that_are_on_one_side_alone_are_told_with_their_values`).

What is stored stays readable: `tests/connectors/cdc/test_states.py` has the states of each form. A log that
is made up, in `tests/programs/logged_source.py`, shows how much another database has to bring.
"""
