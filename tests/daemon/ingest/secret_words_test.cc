// SPDX-License-Identifier: Apache-2.0
#include "daemon/ingest/secret_words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nanwatch {
namespace {

using testing::ElementsAre;

std::string Masked(const std::string& word) { return WithoutSecrets({word}).at(0); }

TEST(SecretWords, AreMaskedWhereTheirNameSaysSo) {
  EXPECT_EQ(Masked("--token=abc"), "--token=***");
  EXPECT_EQ(Masked("--hf-token=abc"), "--hf-token=***");
  EXPECT_EQ(Masked("HF_TOKEN=abc"), "HF_TOKEN=***");
  EXPECT_EQ(Masked("MY_SIGNING_KEY=abc"), "MY_SIGNING_KEY=***");
  EXPECT_EQ(Masked("SOME_KEY=abc"), "SOME_KEY=***");
  EXPECT_EQ(Masked("--wandb_api_key=abc"), "--wandb_api_key=***");
  EXPECT_EQ(Masked("--dbPassword=a=b c"), "--dbPassword=***");
  EXPECT_EQ(Masked("+logger.secret=abc"), "+logger.secret=***");
}

TEST(SecretWords, AreMaskedWhereTheyFollowTheirName) {
  EXPECT_THAT(WithoutSecrets({"train.py", "--password", "abc", "--lr", "0.1"}),
              ElementsAre("train.py", "--password", "***", "--lr", "0.1"));
  EXPECT_THAT(WithoutSecrets({"--api-key", "--lr", "0.1"}),
              ElementsAre("--api-key", "--lr", "0.1"));
}

TEST(SecretWords, AreMaskedInAScriptWordByWord) {
  EXPECT_THAT(WithoutSecrets({"bash", "-c", "HF_TOKEN=abc python train.py --lr 0.1"}),
              ElementsAre("bash", "-c", "HF_TOKEN=*** python train.py --lr 0.1"));
  EXPECT_THAT(WithoutSecrets({"sh", "-lc", "export A=1; API_KEY='a b' x --password  abc --lr 3"}),
              ElementsAre("sh", "-lc", "export A=1; API_KEY=*** x --password  *** --lr 3"));
  EXPECT_THAT(WithoutSecrets({"sh", "-c", "SECRET=\"a b\"'c'd&&run"}),
              ElementsAre("sh", "-c", "SECRET=***&&run"));
  EXPECT_THAT(WithoutSecrets({"sh", "-c", "SECRET='never closed"}),
              ElementsAre("sh", "-c", "SECRET=***"));
  EXPECT_THAT(WithoutSecrets({"python", "-c", "import torch; x = 'a b'"}),
              ElementsAre("python", "-c", "import torch; x = 'a b'"));
  EXPECT_THAT(WithoutSecrets({"env", "HF_TOKEN=a b", "python"}),
              ElementsAre("env", "HF_TOKEN=***", "python"))
      << "a word of its own is one value";
}

TEST(SecretWords, FlagsAboutThemAreNone) {
  EXPECT_THAT(WithoutSecrets({"train.py", "--use_auth_token", "data.csv", "--no-token", "x"}),
              ElementsAre("train.py", "--use_auth_token", "data.csv", "--no-token", "x"));
  for (const char* word : {"--use_auth_token=True", "--token=false", "--use-auth-token=1"})
    EXPECT_EQ(Masked(word), word);
  EXPECT_EQ(Masked("--use_auth_token=hf_x"), "--use_auth_token=***");
  EXPECT_EQ(Masked("--password=1"), "--password=***") << "a bad one is one";
}

TEST(SecretWords, BehindAFlagAreMaskedUnlessTheyAreAnAnswerOrAFile) {
  EXPECT_THAT(WithoutSecrets({"--use_auth_token", "abc", "--with-password", "x", "train.py"}),
              ElementsAre("--use_auth_token", "***", "--with-password", "***", "train.py"));
  for (const char* word : {"True", "no", "--lr", "train.py", "conf/run.yaml"}) {
    EXPECT_THAT(WithoutSecrets({"--use_auth_token", word}), ElementsAre("--use_auth_token", word));
  }
  EXPECT_THAT(WithoutSecrets({"--use_auth_token", "train.py", "x"}),
              ElementsAre("--use_auth_token", "train.py", "x"));
  EXPECT_THAT(WithoutSecrets({"--without-password", "x"}), ElementsAre("--without-password", "x"));
}

TEST(SecretWords, PasswordsOfDatabasesAreNoDirectories) {
  EXPECT_EQ(Masked("MYSQL_PWD=abc"), "MYSQL_PWD=***");
  EXPECT_EQ(Masked("--db_pwd=abc"), "--db_pwd=***");
  EXPECT_EQ(Masked("--dbpwd=abc"), "--dbpwd=***");
  EXPECT_THAT(WithoutSecrets({"--db-pwd", "abc"}), ElementsAre("--db-pwd", "***"));
}

TEST(SecretWords, AreMaskedInAddresses) {
  EXPECT_EQ(Masked("postgres://me:abc@host/db"), "postgres://me:***@host/db");
  EXPECT_EQ(Masked("--url=https://me:a@b@host:80/"), "--url=https://me:***@host:80/");
  EXPECT_EQ(Masked("https://host/x?a=1&access_token=abc&b=2"),
            "https://host/x?a=1&access_token=***&b=2");
}

TEST(SecretWords, AreMaskedWhereTheirFormSaysSo) {
  EXPECT_EQ(Masked("hf_abcdefghijklmnop0123"), "hf_***");
  EXPECT_EQ(Masked("login('ghp_abcdefghijklmnop0123')"), "login('ghp_***')");
}

TEST(SecretWords, OfATrainingThatAreNoneStay) {
  for (const char* word : {"--pad-token=<pad>",
                           "--max-tokens=512",
                           "--tokenizer=bert",
                           "--label-key=label",
                           "--key-dim=64",
                           "--lr=0.1",
                           "train.py",
                           "https://host:80/a@b",
                           "-c",
                           "task-sk-learn-model",
                           "--pwd=/home/me",
                           "PWD=/home/me",
                           "OLDPWD=/x",
                           "--prompt_token=abc",
                           "--placeholder_token=<cat>",
                           "--initializer-token=toy",
                           "--monkey=1",
                           "PYTHONPATH=/a:/b",
                           "--token-dropout=0.1",
                           "hf_hub",
                           "--model=hf_mirror/x"}) {
    EXPECT_EQ(Masked(word), word);
  }
  EXPECT_THAT(WithoutSecrets({"--pwd", "/home/me", "--prompt_token", "hello"}),
              ElementsAre("--pwd", "/home/me", "--prompt_token", "hello"));
  EXPECT_THAT(WithoutSecrets({}), ElementsAre());
  EXPECT_EQ(Masked("="), "=");
  EXPECT_EQ(Masked("--token="), "--token=");
  EXPECT_EQ(Masked("://:@"), "://:***@");
}

}  // namespace
}  // namespace nanwatch
